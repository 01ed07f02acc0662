"""Cells of a plan that options choose, and their seed."""

from __future__ import annotations

from typing import Any


def keep_first(plan: Any, limit: int) -> None:
    """Keep the first groups of each experiment: whole groups, so that pairs stay pairs."""
    kept: dict[tuple[str, str], list[str]] = {}
    for planned in plan.cells:
        groups = kept.setdefault((planned.cell.paper, planned.cell.experiment), [])
        if planned.cell.group not in groups:
            groups.append(planned.cell.group)
    plan.cells = [
        c for c in plan.cells if c.cell.group in kept[c.cell.paper, c.cell.experiment][:limit]
    ]


def keep_named(plan: Any, patterns: tuple[str, ...]) -> None:
    """Keep the groups whose names match a pattern. Raises DgbenchError where one matches none."""
    from fnmatch import fnmatchcase

    from dgbench.runtime.errors import DgbenchError

    there = list(dict.fromkeys(c.cell.group for c in plan.cells))
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in there):
            raise DgbenchError(
                f"--group is '{pattern}', allowed: {', '.join(there) or 'none, there are no cells'}"
            )
    plan.cells = [c for c in plan.cells if any(fnmatchcase(c.cell.group, p) for p in patterns)]


def set_seed(plan: Any, seed: int) -> None:
    """Give all cells that have a seed another one. Raises DgbenchError where none has."""
    import msgspec

    from dgbench.harness.plan import cell_hash
    from dgbench.runtime.errors import DgbenchError

    changed = 0
    for planned in plan.cells:
        if "seed" in planned.cell.params:
            params = {**planned.cell.params, "seed": seed}
            planned.cell = msgspec.structs.replace(planned.cell, params=params)
            planned.hash = cell_hash(planned.cell, plan.preset, plan.device)
            changed += 1
    if not changed:
        raise DgbenchError("--seed changes nothing: no cell of this plan has a seed")
