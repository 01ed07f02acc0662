"""Sides of a comparison: runs, folders of runs, a commit, or a machine."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from dgbench.harness.store import Store, find_run, list_runs
from dgbench.lab.compare import without_control
from dgbench.lab.noise import NoisePairs
from dgbench.runtime.errors import DgbenchError, InvalidInputError, UnknownKeyError, unknown_key

REFERENCE: Final = Path("results") / "reference"
"""Where kept runs of machines are, seen from the top of a checkout."""
_COMMIT = re.compile(r"[0-9a-f]{7,40}")


@dataclass(frozen=True, slots=True)
class State:
    """One side of a comparison: the rows of one run or of several.

    Attributes:
        name: how it is called in texts. runs: their ids.
        rows: un-instrumented rows without controls. where: the run of each row, by its place.
        floor: noise floor of all runs, the largest. facts: flat provenance of the newest run.
        paths: folders of the runs. race: id of the interleaved race that all are sides of, or "".
    """

    name: str
    runs: tuple[str, ...]
    rows: list[Any]
    where: list[str]
    floor: float | None = None
    facts: dict[str, str] = field(default_factory=dict)
    paths: tuple[Path, ...] = ()
    race: str = ""

    @classmethod
    def of(cls, stores: Sequence[Any], name: str = "") -> State:
        """The state of open stores; rows are joined, and the last one says where it ran."""
        rows, where = [], []
        floors: list[float] = []
        facts: dict[str, str] = {}
        for store in stores:
            every = store.rows()
            mine = [r for r in without_control(every) if not r.instrumented]
            rows += mine
            where += [store.run] * len(mine)
            floor = NoisePairs.of(every).of_run()
            floors += [] if floor is None else [floor]
            if provenance := store.provenance():
                facts = flat(list(provenance.values())[-1])
        runs = tuple(store.run for store in stores)
        paths = tuple(Path(store.path) for store in stores)
        races = {str(getattr(store, "info", {}).get("race", "")) for store in stores}
        race = races.pop() if len(races) == 1 else ""
        floor = max(floors, default=None)
        return cls(name or " + ".join(runs), runs, rows, where, floor, facts, paths, race)

    @property
    def devices(self) -> set[str]:
        """`cpu`, `cuda`, or both."""
        return {row.device for row in self.rows}


def flat(value: Any, prefix: str = "") -> dict[str, str]:
    """Nested facts as `machine.cpu.model` -> words."""
    if isinstance(value, Mapping):
        found: dict[str, str] = {}
        for key, inner in value.items():
            found |= flat(inner, f"{prefix}.{key}" if prefix else str(key))
        return found
    return {prefix: str(value)}


def find_state(name: str, root: Path | None = None, reference: Path | None = None) -> State:
    """The state that a person means.

    Args:
        name: a run (id, stamp, path, `last`), the folder of a run or of several, a commit (seven
            digits or more), `machine:<slug>` or the slug alone; several of these with commas.
            Of a folder, commit or machine every paper's newest run is taken.
        root: where runs are. reference: where kept runs are, a folder per machine.

    Raises:
        UnknownKeyError: there is nothing of that name.
        StoreError: a run cannot be read, or the name stands for several runs.
        InvalidInputError: the name is empty, or a folder holds no run.
    """
    parts = [part.strip() for part in name.split(",")]
    if not all(parts):
        raise InvalidInputError(
            f"'{name}' names an empty state", hint="give runs with single commas: 7f3a91c2,last"
        )
    paths = [path for part in parts for path in _paths(part, root, reference or REFERENCE)]
    unique = {path.resolve(): path for path in paths}
    return State.of([Store.open(path) for path in unique.values()], name=_short(name))


def _short(name: str) -> str:
    """`results/reference/<machine>/<paper>` without what all kept runs have in common."""
    parts = (part.strip().rstrip("/") for part in name.split(","))
    return " + ".join(p.removeprefix(f"{REFERENCE}/").removeprefix("machine:") for p in parts)


def _paths(name: str, root: Path | None, reference: Path) -> list[Path]:
    folder = Path(name)
    if (folder / "run.json").is_file():
        return [folder]
    if folder.is_dir():
        return _below(folder)
    slug = name.removeprefix("machine:")
    if (reference / slug).is_dir() and slug:
        return _below(reference / slug)
    if name.startswith("machine:"):
        known = sorted(p.name for p in reference.glob("*") if p.is_dir())
        raise unknown_key("machine", slug, known, of=str(reference))
    try:
        return [find_run(name, root)]
    except UnknownKeyError:
        found = _of_commit(name, root, reference) if _COMMIT.fullmatch(name) else []
        if not found:
            raise
        return found


def _below(folder: Path) -> list[Path]:
    found = sorted(p.parent for p in folder.rglob("run.json"))
    if not found:
        raise InvalidInputError(
            f"'{folder}' holds no run", hint="name the folder of a run, or one with runs below it"
        )
    return _newest_per_paper(found)


def _of_commit(commit: str, root: Path | None, reference: Path) -> list[Path]:
    kept = sorted(p.parent for p in reference.rglob("run.json"))
    found = []
    for path in [*list_runs(root), *kept]:
        with contextlib.suppress(DgbenchError):
            facts = Store.open(path).provenance().values()
            if any(str(f.get("code", {}).get("commit", "")).startswith(commit) for f in facts):
                found.append(path)
    return _newest_per_paper(found)


def _newest_per_paper(paths: Sequence[Path]) -> list[Path]:
    """Of every paper the run that began last, oldest first."""
    begun = []
    for path in paths:
        store = Store.open(path)
        papers = {row.paper for row in store.rows() if row.paper != "-"}
        begun.append((str(store.info.get("started", "")), str(path), path, papers))
    newest: dict[str, Path] = {}
    for _, _, path, papers in sorted(begun, key=lambda b: b[:2]):
        newest |= dict.fromkeys(papers, path)
    return [path for _, _, path, _ in sorted(begun, key=lambda b: b[:2]) if path in newest.values()]
