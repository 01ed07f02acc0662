"""Skipped tests: one a module where none can run, and why by groups at the end of a run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

import pytest

MAX_GROUPS: Final = 12
"""Lines of the summary; `-rs` shows all."""
_ALL: Final = re.compile(r" \[(\d+) tests\]$")
_VARYING: Final = re.compile(r"'[^']*'|\b\d[\d.,]*\b")


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


def write_summary(terminal: Any) -> None:
    """Write why tests were skipped, reasons that differ in names and numbers only taken together;
    `terminal` is pytest's reporter."""
    groups: Counter[str] = Counter()
    for report in terminal.stats.get("skipped", []):
        if isinstance(report.longrepr, tuple):
            reason = report.longrepr[2].removeprefix("Skipped: ")
            several = _ALL.search(reason)
            text = _VARYING.sub("...", _ALL.sub("", reason))
            groups[text] += int(several[1]) if several else 1
    if groups and terminal.config.get_verbosity() > -2:
        terminal.section("tests that did not run, by reason", sep="-")
        for text, count in groups.most_common(MAX_GROUPS):
            terminal.line(f"{count:6,} {text}"[:140])
