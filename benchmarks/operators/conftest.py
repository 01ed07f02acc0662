"""Micro-benchmarks of the CPU operators: limits of the machine, and one plain table at the end.

    pytest benchmarks/operators --benchmark-quiet                              # or: nox -s bench
    pytest benchmarks/operators --benchmark-quiet --benchmark-save=baseline    # keep a baseline

Every benchmark says what it moves and computes at least, and what bounds it: copying memory,
fetching random cache lines, or multiplying. The limits are measured in the same session, by as
many threads. Saved sessions lie in `results/bench/<processor>-<threads>t`; with
`--benchmark-compare` the newest of them stands beside.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from work import GB, Work, limits, machine

STORAGE = Path(__file__).parents[2] / "results/bench"


@pytest.fixture
def timed(benchmark: Any) -> Callable[..., Any]:
    """`timed(work, function, *arguments)`: benchmark a call and keep what it does beside it.

    With `fresh`, a function that makes the arguments anew for every round.
    """

    def run(work: Work, function: Callable[..., Any], *args: Any, fresh: Any = None, **kw: Any):
        # measured before the operator, so that the machine is in the same state for both
        limit = limits()[work.bound]
        benchmark.extra_info.update(
            size=work.size, moved=work.moved, lines=work.lines, operations=work.products,
            bound=work.bound, amount=work.amount, limit=limit,
        )  # fmt: skip
        if fresh is None:
            return benchmark(function, *args, **kw)
        return benchmark.pedantic(function, setup=lambda: (fresh(), {}), rounds=9)

    return run


def pytest_configure(config: pytest.Config) -> None:
    """Keep sessions by machine; runs before the plugin opens its storage."""
    if getattr(config.option, "benchmark_storage", None) in (None, "file://./.benchmarks"):
        config.option.benchmark_storage = f"file://{STORAGE / machine()}"


def pytest_benchmark_update_machine_info(config: pytest.Config, machine_info: dict) -> None:
    """The folder's name says which kind of machine it was; a host's name does not belong here."""
    for key in ("node", "cpu", "release"):
        machine_info.pop(key, None)
    machine_info["dgbench"] = machine()
    machine_info["torch"] = torch.__version__


def pytest_benchmark_update_commit_info(config: pytest.Config, commit_info: dict) -> None:
    """Keep what identifies the code."""
    for key in ("project", "branch", "author_time"):
        commit_info.pop(key, None)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """One line an operator: size, time with interval, rate, share of its limit, ratio to before."""
    session = getattr(config, "_benchmarksession", None)
    if session is None or not session.benchmarks:
        return
    before = _before(session)
    lines = [("operator", "size", "median [95 %]", "GB/s", "share of limit", "before / now")]
    for one in session.benchmarks:
        if one.extra_info.get("bound") and not one.has_error:
            lines.append(_line(one, before.get(one.fullname)))
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    write = terminalreporter.write_line
    write("")
    for line in lines:
        left = "  ".join(cell.ljust(width) for cell, width in zip(line[:3], widths, strict=False))
        right = "  ".join(cell.rjust(w) for cell, w in zip(line[3:], widths[3:], strict=True))
        write(f"{left}  {right}".rstrip())
    found = limits()
    copies, products = found["copy"] / GB, found["products"] / GB
    write("")
    write(
        f"Limits of this session, {torch.get_num_threads()} threads: copies {copies:.1f} GB/s, "
        f"random lines {found['lines'] / 1e6:.0f} M/s, products {products:.0f} GFLOP/s."
    )
    write("Above 100 %: from caches. Intervals are over the calls of one process.")


def _line(one: Any, before: float | None) -> tuple[str, ...]:
    from dgbench.runtime.statistics import median_interval

    info = one.extra_info
    middle, low, high = median_interval(one.stats.data)
    span = "" if low is None else f" [{_seconds(low)}, {_seconds(high)}]"
    share = info["amount"] / middle / info["limit"]
    return (
        one.name.removeprefix("test_"),
        info["size"],
        _seconds(middle) + span,
        f"{info['moved'] / middle / GB:.1f}",
        f"{100 * share:.0f} % of {info['bound']}",
        "" if before is None else f"{before / middle:.2f}x",
    )


def _seconds(value: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"


def _before(session: Any) -> dict[str, float]:
    """Median by name of the newest session that is compared with."""
    found: dict[str, float] = {}
    for mapping in (session.compared_mapping or {}).values():
        found |= {name: bench["stats"]["median"] for name, bench in mapping.items()}
    return found
