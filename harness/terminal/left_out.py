"""Cells that failed or did not run, grouped by reason, with what helps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dgbench.harness.claims.evaluate import PaperVerdicts
from dgbench.harness.store.row import FAILED, LACKING, VOID
from dgbench.harness.store.standing import void_reasons, wrong_results
from dgbench.harness.terminal.text import WIDTH, wrapped

MAX_GROUPS = 12
"""Reasons that are listed; the report has all."""

REASONS = {
    "oom": "out of memory",
    "time": "time limit",
    "crash": "crashed",
    "check": "wrong result",
    VOID: "void",
}


def failure(row: Any) -> str:
    """Why a row has no result, in words: the kind, then its reason."""
    kind = REASONS.get(row.status, row.status)
    reason = row.reason.strip()
    if not reason or reason.lower().startswith(kind):
        return reason or kind
    return f"{kind}, {reason}"


def failed_text(rows: Sequence[Any], run: str, width: int = WIDTH) -> str:
    """Failed cells by reason and how to run them again; "" where none failed."""
    lines, count = _grouped([row for row in rows if row.status in FAILED], failure, width)
    if not lines:
        return ""
    again = wrapped(f"try again: dgbench run --resume {run} --retry failed", "  ", width)
    return "\n".join([f"failed: {_cells(count)}", *lines, again])


def wrong_text(rows: Sequence[Any], papers: Sequence[PaperVerdicts], width: int = WIDTH) -> str:
    """Contenders with a wrong result, and rows and claims void for it; "" where all are right.

    This comes first: nothing that a wrong system is said to be faster at may be read before it.
    """
    wrong = wrong_results(rows)
    void = [row for row in rows if void_reasons(row)]
    if not wrong and not void:
        return ""
    lines = [wrapped(sentence, "WRONG RESULT: ", width, hanging="  ") for sentence in wrong]
    if void:
        found, count = _grouped(void, lambda row: "; ".join(void_reasons(row)), width)
        claims = sum(verdict.void for paper in papers for verdict in paper.verdicts)
        named = f", and {claims} claims with them" if claims else ""
        lines += [wrapped(f"void: {_cells(count)}{named}", "", width, hanging="  "), *found]
    return "\n".join(lines)


def skipped_text(rows: Sequence[Any], papers: Sequence[PaperVerdicts], width: int = WIDTH) -> str:
    """Cells that did not run by reason, with what each needs, and claims without a verdict."""
    lines, count = _grouped([row for row in rows if row.status in LACKING], _need, width)
    if lines:
        lines = [f"not run: {_cells(count)}", *lines]
    for paper in papers:
        if open_ := paper.counts["-"]:
            name = paper.paper.name
            text = f"{open_} of {len(paper.verdicts)} claims of {name} are not decided"
            lines.append(wrapped(f"{text}: dgbench claims {name} --needs", "", width, hanging="  "))
    return "\n".join(lines)


def _need(row: Any) -> str:
    """A reason with what helps, where the reason does not say it itself."""
    from dgbench.harness.doctor import CONTENDERS

    reason = row.reason.strip() or row.status
    if row.status == "no-gpu":
        return f"{reason} (needs an NVIDIA GPU)"
    for module, (command, _) in CONTENDERS.items():
        names = (module, module.replace("_", "-"))
        if any(name in reason for name in names) and command not in reason:
            return f"{reason} ({command})"
    if row.status == "not-built" and "(" not in reason:
        return f"{reason} (dgbench doctor)"
    return reason


def _grouped(rows: Sequence[Any], words: Any, width: int) -> tuple[list[str], int]:
    """Lines for reasons, the most frequent first, and how many cells they are in all."""
    groups: dict[str, dict[str, str]] = {}
    for row in rows:
        groups.setdefault(words(row), {})[row.cell_hash] = f"{row.paper}/{row.experiment}"
    ordered = sorted(groups.items(), key=lambda item: -len(item[1]))
    lines = []
    for reason, cells in ordered[:MAX_GROUPS]:
        experiments = list(dict.fromkeys(cells.values()))
        where = ", ".join(experiments[:3])
        where += f" and {len(experiments) - 3} more" if len(experiments) > 3 else ""
        lines.append(wrapped(f"{where}: {reason}", f"{len(cells):>5}  ", width, hanging=" " * 7))
    if rest := ordered[MAX_GROUPS:]:
        count = len({key for _, cells in rest for key in cells})
        words_ = f"for {len(rest)} more reasons, which the report lists"
        lines.append(wrapped(words_, f"{count:>5}  ", width, hanging=" " * 7))
    return lines, len({key for cells in groups.values() for key in cells})


def _cells(count: int) -> str:
    return "1 cell" if count == 1 else f"{count} cells"
