"""A run's folder: rows.jsonl, provenance.json, plan.json, run.json, copies/ and logs/.

Rows carry a checksum each. The other three are written whole, with a checksum, and once more into
copies/: one that is damaged is read from its copy, and set right by the next writer.

A run that was kept as a reference has `rows.jsonl.gz` in place of `rows.jsonl`, no copies, and is
only read.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import msgspec
from filelock import FileLock, Timeout

from dgbench.harness.store.files import (
    Appender,
    Torn,
    cannot_write,
    from_checked,
    new_folder,
    read_lines,
    read_text,
    sweep_whole,
    to_checked,
    to_line,
    write_whole,
)
from dgbench.harness.store.row import Facts, Info, Row, decode, encode
from dgbench.harness.store.standing import failed_attempts, judged
from dgbench.runtime.errors import DgbenchError, InvalidInputError, StoreError, unknown_key

__all__ = ["Store", "Torn", "find_run", "find_runs", "list_runs", "runs_root"]

_PROBE_BYTES = 1 << 20
_KEPT = ("run.json", "plan.json", "provenance.json")
_COPIES = "copies"
_PACKED = "rows.jsonl.gz"


def runs_root() -> Path:
    """Where runs are kept: `DGBENCH_RESULTS`, or `results/runs` under the current folder."""
    return Path(os.environ.get("DGBENCH_RESULTS") or Path("results") / "runs")


class Store:
    """Rows and facts of one run. Append-only; one writer at a time.

    Attributes:
        path: the run's folder. run: its id (8 hex digits, what `--resume` takes).
        torn: lines that could not be trusted when the store was opened. A writer sets them
            aside into `rows.torn`; a reader leaves the files alone.
        info: contents of run.json (`run`, `stamp`, `state`, `started`, settings of the run).
        damaged: sentences about files that were damaged and read from their copies.
    """

    def __init__(self, path: Path, info: dict[str, Any], *, writable: bool) -> None:
        self.path, self.info, self.writable = path, info, writable
        self.run = str(info["run"])
        self.damaged: list[str] = []
        self.torn: list[Torn] = []
        self._appender: Appender | None = None
        self._lock: FileLock | None = None
        if writable and self.packed:
            raise StoreError(
                f"{path} is kept as a reference and is only read",
                hint="start a run of your own",
            )
        if writable:
            self._lock_folder()
        try:
            if writable:
                _try_disk(path)
                self._tidy()
            self._rows = self._load()
            self._attempts = Counter(name for row in self._rows for name in _names(row.id))
            if writable:
                self._appender = Appender(self.rows_path)
        except BaseException:
            self.close()
            raise

    @classmethod
    def create(
        cls, root: Path | None = None, settings: dict[str, Any] | None = None, plan: Any = None
    ) -> Store:
        """Make a new run's folder under `root` (default `runs_root()`).

        It appears with run.json (and the plan) in it, or not at all. The disk is tried with a
        mebibyte first, so that nothing is measured that cannot be kept.

        Args:
            settings: kept in run.json (preset, device, threads, papers ...); JSON values only.
            plan: as for `write_plan`; without one a run that is killed early cannot be resumed.

        Raises:
            StoreError: the folder cannot be written or the disk is full.
        """
        root = Path(root) if root is not None else runs_root()
        now = datetime.now(timezone.utc)
        try:
            root.mkdir(parents=True, exist_ok=True)
            with new_folder(root, ".new-") as folder:
                folder.chmod(0o755)
                (folder / "logs").mkdir()
                (folder / _COPIES).mkdir()
                _try_disk(folder)
                if plan is not None:
                    _keep(folder, "plan.json", msgspec.to_builtins(plan))
                path, info = _settle(folder, root, now, settings or {})
        except OSError as error:
            raise cannot_write(root, error) from error
        return cls(path, info, writable=True)

    @classmethod
    def open(cls, path: Path, *, writable: bool = False) -> Store:
        """Open a run's folder. Raises StoreError where it is none or cannot be read (written)."""
        path = Path(path)
        found, note = _read_kept(path, "run.json")
        if found is None:
            raise StoreError(
                f"{path} is not the folder of a run (it has no run.json)",
                hint="name a folder under results/runs, or an id",
            )
        try:
            msgspec.convert(found, Info)
        except msgspec.ValidationError as error:
            raise StoreError(f"cannot read {path / 'run.json'}: {error}") from error
        store = cls(path, found, writable=writable)
        store.damaged += [note] if note and note not in store.damaged else []
        return store

    @property
    def rows_path(self) -> Path:
        """rows.jsonl of this run."""
        return self.path / "rows.jsonl"

    @property
    def packed(self) -> bool:
        """True if the rows exist only as `rows.jsonl.gz`."""
        return not self.rows_path.exists() and self.path.joinpath(_PACKED).exists()

    def row_bytes(self) -> bytes:
        """Contents of rows.jsonl, unpacked; b"" where there are no rows. Raises StoreError."""
        return read_text(self._rows_file)

    @property
    def _rows_file(self) -> Path:
        return self.path / _PACKED if self.packed else self.rows_path

    def append(self, row: Row) -> None:
        """Keep a row; it is on disk when this returns. Raises StoreError, and keeps the rest."""
        if self._appender is None:
            raise StoreError(f"{self.path} was opened for reading only")
        try:
            payload = encode(row)
            decode(payload)
        except (msgspec.MsgspecError, UnicodeEncodeError) as error:
            raise StoreError(
                f"row {row.id} would be lost, it cannot be read again: {error}",
                hint="JSON has no number that is not finite and no half of a letter",
            ) from error
        self._appender.append(payload)
        self._rows.append(row)
        self._attempts.update(_names(row.id))

    def restore(self) -> bool:
        """Write the rows anew where somebody else has changed their file; True where one had."""
        return self._appender is not None and self._appender.restore()

    def rows(self) -> list[Row]:
        """The last attempt of each process in the order of writing, void where it decides nothing.

        A check that an earlier attempt failed counts against the last one. See
        `harness.store.standing`: this is where all readers get their rows.
        """
        return judged(self._rows)

    def kept(self) -> list[Row]:
        """Rows that a copy of the run holds: last attempts, and those that failed a check."""
        keep = {id(row) for row in (*self.written(), *failed_attempts(self._rows))}
        return [row for row in self._rows if id(row) in keep]

    def written(self, *, latest: bool = True) -> list[Row]:
        """Rows as they were written; with `latest`, only the last attempt of each process.

        For those who go on with a run or keep it; a result is read with `rows`.
        """
        if not latest:
            return list(self._rows)
        last = {(r.cell_hash or r.id, r.round, r.instrumented): r for r in self._rows}
        keep = {id(row) for row in last.values()}
        return [row for row in self._rows if id(row) in keep]

    def attempts(self, row_id: str) -> int:
        """Number of rows whose id is `row_id`, or that followed by `.<attempt>`."""
        return self._attempts[row_id]

    def write_plan(self, plan: Any) -> None:
        """Keep the plan (any JSON-encodable value or msgspec struct) as plan.json."""
        _keep(self.path, "plan.json", msgspec.to_builtins(plan))

    def read_plan(self) -> Any:
        """The decoded plan.json, or None if there is none. Raises StoreError."""
        return self._read("plan.json")

    def add_provenance(self, facts: dict[str, Any]) -> str:
        """Keep where rows come from; returns the key that rows carry. Same facts, same key."""
        key = hashlib.sha256(msgspec.json.encode(facts, order="deterministic")).hexdigest()[:12]
        known = self.provenance()
        if known.get(key) != facts:
            known[key] = facts
            _keep(self.path, "provenance.json", known)
        return key

    def provenance(self) -> dict[str, dict[str, Any]]:
        """All provenance of this run by key. Raises StoreError."""
        found = self._read("provenance.json") or {}
        try:
            msgspec.convert(found, dict[str, Facts])
        except msgspec.ValidationError as error:
            path = self.path / "provenance.json"
            raise StoreError(f"{path} does not hold facts of a machine: {error}") from error
        return found

    def update(self, **facts: Any) -> None:
        """Change entries of run.json, such as `state="partial"` and `note="..."`."""
        self.info.update(facts)
        _keep(self.path, "run.json", self.info)

    def try_disk(self) -> None:
        """Raise StoreError where a mebibyte cannot be written now."""
        _try_disk(self.path)

    def close(self) -> None:
        """Give the folder free for another writer."""
        if self._appender is not None:
            self._appender.close()
            self._appender = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _lock_folder(self) -> None:
        self._lock = FileLock(self.path / ".lock", timeout=0)
        try:
            self._lock.acquire()
        except Timeout as error:
            self._lock = None
            raise StoreError(
                f"another process is writing the run {self.run}",
                hint="wait for it, or start a run of your own (without --resume)",
            ) from error
        except OSError as error:
            self._lock = None
            raise cannot_write(self.path / ".lock", error) from error

    def _load(self) -> list[Row]:
        payloads, self.torn = read_lines(self._rows_file)
        rows, kept = [], []
        for payload in payloads:
            try:
                rows.append(decode(payload))
                kept.append(payload)
            except msgspec.MsgspecError as error:
                self.torn.append(Torn(0, payload, f"not a row: {error}"))
        if self.torn and self.writable:
            aside = self.path / "rows.torn"
            before = aside.read_bytes() if aside.exists() else b""
            text = b"".join(b"# %s\n%s\n" % (t.reason.encode(), t.text) for t in self.torn)
            write_whole(aside, before + text)  # first aside, then out: never in neither file
            write_whole(self.rows_path, b"".join(map(to_line, kept)))
        return rows

    def _read(self, name: str) -> Any:
        found, note = _read_kept(self.path, name)
        if note and note not in self.damaged:
            self.damaged.append(note)
        return found

    def drop_results(self) -> None:
        """Remove what processes have written for a runner that made no row of it."""
        for left in (self.path / "logs").glob("*.result*"):
            with contextlib.suppress(OSError):
                left.unlink()

    def _tidy(self) -> None:
        """Remove what a killed writer left, and set right what was damaged; the lock is held."""
        names = (*_KEPT, "rows.jsonl", "rows.torn", ".probe")
        sweep_whole(self.path, *names)
        sweep_whole(self.path / _COPIES, *(f"{name}.copy" for name in _KEPT))
        self.drop_results()
        for name in _KEPT:
            value = self._read(name)
            copy = self.path / _COPIES / f"{name}.copy"
            try:
                same = value is None or (from_checked(copy) == value and not self.damaged)
            except (FileNotFoundError, StoreError):
                same = False
            if not same:
                _keep(self.path, name, value)


def list_runs(root: Path | None = None) -> list[Path]:
    """Folders of runs under `root`, oldest first."""
    root = Path(root) if root is not None else runs_root()
    found = [p.parent for p in root.glob("[!.]*/run.json")]  # a hidden one is not finished
    return sorted(found, key=lambda p: ((p / "run.json").stat().st_mtime_ns, p.name))


def last_first(root: Path | None = None) -> list[Path]:
    """Folders of runs under `root`, the one that was started last first."""
    return sorted(list_runs(root), key=_started, reverse=True)


def find_run(name: str, root: Path | None = None) -> Path:
    """The folder of a run by its id (or a prefix of it), its stamp, `last`, or a path.

    Runs that were kept as references are found by `MACHINE/PAPER`, such as `nvidia-h200/tgcn`.

    Raises:
        InvalidInputError: the name is empty.
        UnknownKeyError: no run is called so.
        StoreError: several runs are, or there are none for `last`; or the path has no run.
    """
    if not name.strip():  # as a path it would be the current folder
        raise InvalidInputError(f"the run is '{name}', allowed: an id, a stamp, a path or 'last'")
    if (Path(name) / "run.json").is_file():
        return Path(name)
    kept = (Path(root) if root is not None else runs_root()).parent / "reference" / name
    if (kept / "run.json").is_file():
        return kept
    runs = list_runs(root)
    if name == "last":
        if not runs:
            raise StoreError(
                f"there are no runs under {root or runs_root()}", hint="start one: dgbench run"
            )
        return last_first(root)[0]
    names: dict[str, Path] = {}
    for path in runs:
        names[path.name] = path
        with contextlib.suppress(DgbenchError):
            names[Store.open(path).run] = path
    if name in names:
        return names[name]
    hits = {path for key, path in names.items() if len(name) >= 3 and key.startswith(name)}
    if len(hits) > 1:
        raise StoreError(
            f"'{name}' stands for {len(hits)} runs: {', '.join(sorted(p.name for p in hits))}",
            hint="give more of it",
        )
    if not hits and Path(name).is_dir():
        raise StoreError(f"{name} holds no run.json, so it is not the folder of a run")
    if not hits:
        raise unknown_key("run", name, [*names, "last"])
    return hits.pop()


def find_runs(name: str | Path, root: Path | None = None) -> list[Path]:
    """The run called `name` (see `find_run`), or all runs below a folder such as results/reference.

    Raises:
        UnknownKeyError, StoreError: as `find_run`; a folder without runs is a StoreError.
    """
    folder = Path(name)
    if not str(name).strip() or not folder.is_dir() or (folder / "run.json").is_file():
        return [find_run(str(name), root)]
    found = sorted(
        p.parent for depth in ("[!.]*", "[!.]*/[!.]*") for p in folder.glob(f"{depth}/run.json")
    )
    if not found:
        raise StoreError(
            f"there is no run in {folder} or two folders below it",
            hint="a run is a folder with run.json and rows.jsonl (or rows.jsonl.gz)",
        )
    return found


def _names(row_id: str) -> Iterator[str]:
    """The ids of which a row is an attempt: its own, and what stands before each of its points."""
    yield row_id
    while (at := row_id.rfind(".")) >= 0:
        row_id = row_id[:at]
        yield row_id


def _started(path: Path) -> tuple[str, str]:
    try:
        return str(Store.open(path).info.get("started", "")), path.name
    except DgbenchError:
        return "", path.name


def _try_disk(path: Path) -> None:
    """Write and remove a mebibyte, so that a full or read-only disk is found out now.

    Only under the run's lock, or in a folder that nobody else knows.
    """
    probe = path / ".probe"
    try:
        write_whole(probe, bytes(_PROBE_BYTES))
    finally:
        with contextlib.suppress(OSError):
            probe.unlink(missing_ok=True)


def _settle(
    folder: Path, root: Path, now: datetime, settings: dict[str, Any]
) -> tuple[Path, dict[str, Any]]:
    """Give a new run's folder its name, the first of its minute that is free, and its run.json."""
    stamp, number = now.strftime("%Y-%m-%dT%H%M"), 1
    while True:
        path = root / (stamp if number == 1 else f"{stamp}-{number}")
        number += 1
        if path.exists():
            continue
        run = hashlib.sha256(f"{path.name}{os.getpid()}{now.isoformat()}".encode()).hexdigest()[:8]
        info = {
            "run": run,
            "stamp": path.name,
            "state": "running",
            "started": now.isoformat(timespec="seconds"),
            "ended": None,
            "note": "",
            **settings,
        }
        _keep(folder, "run.json", info)
        try:
            os.rename(folder, path)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
            continue  # another run has taken the name in between
        return path, info


def _keep(folder: Path, name: str, value: Any) -> None:
    """Write one of the three files and its copy."""
    text = to_checked(value)
    write_whole(folder / name, text)
    copies = folder / _COPIES
    try:
        copies.mkdir(exist_ok=True)
    except OSError as error:
        raise cannot_write(copies, error) from error
    write_whole(copies / f"{name}.copy", text)


def _read_kept(folder: Path, name: str) -> tuple[dict[str, Any] | None, str]:
    """One of the three files, from its copy where it is damaged, and a sentence if it was.

    None where there is none. Raises StoreError where no good one is left.
    """
    copy = folder / _COPIES / f"{name}.copy"
    try:
        return from_checked(folder / name, required=copy.exists()), ""  # copies came with checksums
    except FileNotFoundError:
        return None, ""
    except StoreError as error:
        try:
            return from_checked(copy), f"{error}; its copy is used"
        except (FileNotFoundError, StoreError):
            hint = "rows.jsonl is checked line by line and may be whole all the same"
            if (folder / _PACKED).exists():  # a reference has no copies
                hint = "fetch it again, such as from version control"
            raise StoreError(f"{error}, and there is no good copy of it", hint=hint) from error
