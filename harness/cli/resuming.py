"""Earlier runs of the same thing: which one `--resume` goes on with, and how long one took."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any


def run_to_resume(
    name: str, root: Path | None, papers: Iterable[str], experiments: Iterable[str]
) -> Path:
    """The folder of the run called `name`; `last` is the last one of what is asked for.

    Args:
        papers, experiments: names that the command was given; without any, every run fits.

    Raises:
        UnknownKeyError, StoreError: as `find_run`.
        InvalidInputError: the run, or every run, is of something else.
    """
    from dgbench.harness.store import find_run, last_first
    from dgbench.runtime.errors import InvalidInputError

    papers, experiments = list(papers), list(experiments)
    asked = ", ".join(experiments or papers)
    if name != "last" or not asked:
        path = find_run(name, root)
        if asked and not _fits(path, papers, experiments):
            raise InvalidInputError(
                f"--resume {name} is the run {path}, which is of {_said(path)}, not of {asked}",
                hint="name no experiment to go on with it, or leave --resume out",
            )
        return path
    runs = last_first(root)
    for path in runs:
        if _fits(path, papers, experiments):
            return path
    last = f", the last one is of {_said(runs[0])}" if runs else ""
    raise InvalidInputError(
        f"--resume last finds no run of {asked} among {len(runs)} runs{last}",
        hint="start one: leave --resume out",
    )


def threads_of(path: Path, given: int | None) -> int | None:
    """Threads that a run began with; None where it began none of its processes.

    Raises:
        InvalidInputError: others are given.
    """
    from dgbench.runtime.errors import InvalidInputError

    kept = _info(path).get("threads")
    if kept is not None and given not in (None, kept):
        raise InvalidInputError(
            f"--threads is {given}, and the run {path} began with {kept}",
            hint="leave --threads out to go on with it, or start a new run",
        )
    return kept or given


def last_time(root: Any, papers: list[Any], experiments: list[str], plan: Any) -> float | None:
    """Seconds that the last finished run of the same kind took."""
    from datetime import datetime

    import msgspec

    from dgbench.harness.store import list_runs

    wanted = ([p.name for p in papers], experiments, plan.preset, plan.device)
    for path in reversed(list_runs(root)):
        try:
            info = msgspec.json.decode((path / "run.json").read_bytes())
            found = tuple(info.get(k) for k in ("papers", "experiments", "preset", "device"))
            if found == wanted and info.get("state") == "done":
                begin, end = (datetime.fromisoformat(info[k]) for k in ("started", "ended"))
                return (end - begin).total_seconds()
        except (OSError, msgspec.DecodeError, AttributeError, KeyError, TypeError, ValueError):
            continue
    return None


def _fits(path: Path, papers: list[str], experiments: list[str]) -> bool:
    """Return True if a run was started with the same papers and experiments."""
    info = _info(path)
    kept = {_full(name, experiments) for name in info.get("experiments") or ()}
    if experiments:
        return kept == set(experiments)
    return not kept and set(info.get("papers") or ()) == set(papers)


def _full(name: str, experiments: list[str]) -> str:
    """An experiment's name with its paper, where it is one of those asked for."""
    hits = [full for full in experiments if "/" not in name and full.endswith(f"/{name}")]
    return hits[0] if len(hits) == 1 else name


def _said(path: Path) -> str:
    """Papers or experiments of a run, as named on the command line."""
    info = _info(path)
    return ", ".join(info.get("experiments") or info.get("papers") or ()) or "nothing that is known"


def _info(path: Path) -> dict[str, Any]:
    from dgbench.harness.store import Store
    from dgbench.runtime.errors import DgbenchError

    try:
        return Store.open(path).info
    except DgbenchError:
        return {}
