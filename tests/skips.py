"""Skipped tests: one a module where none can run, and why by groups at the end of a run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

import pytest

MAX_GROUPS: Final = 12
"""Lines of the summary; rarer reasons share the last one."""

MAX_WIDTH: Final = 140

_ALL: Final = re.compile(r" \[(\d+) tests\]$")
_VARYING: Final = (
    (re.compile(r"'[^']*'|\"[^\"]*\""), "'...'"),
    (re.compile(r"\b\d[\d.,]*\b"), "N"),
    (re.compile(r"could not import '\.\.\.': "), ""),
    (re.compile(r"\s+"), " "),
)


def keep_one_a_module(items: Iterable[Any], reason: str) -> tuple[list[Any], list[Any]]:
    """Return items to keep and to leave out: of a module's `cuda` tests one, marked as skipped.

    Its reason ends with the number of tests that it stands for. Other items are kept.
    """
    kept: list[Any] = []
    without: dict[str, list[Any]] = {}
    for item in items:
        if item.get_closest_marker("cuda") is None:
            kept.append(item)
            continue
        module = without.setdefault(item.nodeid.split("::")[0], [])
        if not module:
            kept.append(item)
        module.append(item)
    for module in without.values():
        mark = pytest.mark.skip(reason=f"{reason} [{len(module)} tests]")
        module[0].add_marker(mark, append=False)
    return kept, [item for module in without.values() for item in module[1:]]


def reason_groups(reasons: Iterable[str]) -> Counter[str]:
    """Skipped tests by reason, reasons that differ in names and numbers only taken together."""
    found: Counter[str] = Counter()
    for reason in reasons:
        text, count = reason.removeprefix("Skipped: "), 1
        if several := _ALL.search(text):
            text, count = text[: several.start()], int(several[1])
        for pattern, stand_in in _VARYING:
            text = pattern.sub(stand_in, text)
        found[text.strip()] += count
    return found


def summary_lines(reasons: Iterable[str]) -> list[str]:
    """A line per group, the largest first."""
    groups = reason_groups(reasons).most_common()
    if len(groups) > MAX_GROUPS:
        shown, rest = groups[: MAX_GROUPS - 1], groups[MAX_GROUPS - 1 :]
        groups = [*shown, (f"{len(rest)} other reasons; -rs shows each", sum(n for _, n in rest))]
    lines = (f"{count:6,} {reason}" for reason, count in groups)
    return [line if len(line) <= MAX_WIDTH else f"{line[: MAX_WIDTH - 3]}..." for line in lines]


def write_summary(terminal: Any) -> None:
    """Write the groups of a run's skipped tests; `terminal` is pytest's reporter."""
    reports = terminal.stats.get("skipped", [])
    reasons = [r.longrepr[2] for r in reports if isinstance(r.longrepr, tuple)]
    if reasons and terminal.config.get_verbosity() > -2:
        lines = summary_lines(reasons)
        terminal.section("tests that did not run, by reason", sep="-")
        for line in lines:
            terminal.line(line)
