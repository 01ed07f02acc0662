"""The verdict table, its contradictions, and the four lines that end every run."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, Final

from dgbench.harness.claims.evaluate import PaperVerdicts
from dgbench.harness.claims.kinds import by_kind
from dgbench.harness.claims.shown import show, unit_rest
from dgbench.harness.claims.verdict import GLYPHS, Verdict
from dgbench.harness.store.row import VOID
from dgbench.harness.terminal.text import NARROW, WIDTH, fitted, table, wrapped
from dgbench.lab.probes import probe

CHECKING: Final = probe("check_s")

COLUMNS: Final = {
    "R": "repro.", "d": "dir.", "X": "contra", "S": "supp.", "s": "s.dir", "O": "oppos.",
    "u": "undec.", "v": "read.", "=": "def.", "-": "not run", VOID: VOID,
}  # fmt: skip
"""Glyph, or void -> heading of its column."""


_WORDS: Final = {**GLYPHS, VOID: VOID}


def verdict_table(papers: Sequence[PaperVerdicts], width: int = WIDTH) -> str:
    """Claims per paper and verdict; the counts of a line sum to its claims. Those not run for
    void rows have a column of their own."""
    lines = [
        (p.paper.name, len(p.verdicts), {**p.counts, "-": p.counts["-"] - p.void, VOID: p.void})
        for p in papers
    ]
    if len(lines) > 1:
        total = {word: sum(counts[word] for _, _, counts in lines) for word in COLUMNS}
        lines.append(("all", sum(n for _, n, _ in lines), total))
    shown = [word for word in COLUMNS if any(counts[word] for _, _, counts in lines)]
    name = max(6, *(len(line[0]) for line in lines)) if lines else 6
    heads = [COLUMNS[glyph] for glyph in shown]
    text = [f"{'paper':<{name}} {'claims':>6} " + " ".join(f"{head:>5}" for head in heads)]
    if len(text[0]) > width or width < NARROW:
        return "\n\n".join(_block(*line) for line in lines)
    for paper, claims, counts in lines:
        cells = [str(counts[g]).rjust(max(5, len(COLUMNS[g]))) for g in shown]
        text.append(f"{paper:<{name}} {claims:>6} " + " ".join(cells))
    return "\n".join(text)


def _block(paper: str, claims: int, counts: dict[str, int]) -> str:
    words = [f"  {word:<22}{counts[glyph]:>4}" for glyph, word in _WORDS.items() if counts[glyph]]
    return "\n".join([f"{paper}: {claims} claims", *words])


def kinds_text(papers: Sequence[PaperVerdicts], width: int = WIDTH) -> str:
    """Verdicts by kind of claim, a line each: what was decided for and against."""
    pairs = [pair for p in papers for pair in zip(p.claims, p.verdicts, strict=True)]
    return "\n".join(hanging(one.words, width) for one in by_kind(pairs))


def hanging(text: str, width: int) -> str:
    """Lines of at most `width` characters, all but the first one indented."""
    return textwrap.fill(text, width, subsequent_indent="    ", break_on_hyphens=False)


def contradictions(papers: Sequence[PaperVerdicts], width: int = WIDTH) -> str:
    """Every contradicted claim with both values and the reason; "" if there is none."""
    found = [v for p in papers for v in p.verdicts if v.verdict == "contradicted"]
    if not found:
        return ""
    rows = [
        [
            f"X {v.id}",
            v.source,
            show(v.paper, v.unit, printed=True),
            show(v.measured, v.unit),
            v.reason,
        ]
        for v in found
    ]
    head = f"contradicted ({len(found)})"
    flat = table([head, "", "claimed", "here", "why"], rows)
    if all(len(line) <= width for line in flat.splitlines()):
        return flat
    lines = [head]
    for (name, source, paper, here, why), _ in zip(rows, found, strict=True):
        lines.append(fitted(f"{name}   {source}", width))
        lines.append(wrapped(f"claimed {paper}, here {here}: {why}", "  ", width))
    return "\n".join(lines)


def ending(
    *,
    seconds: float,
    cells: tuple[int, int, int, int],
    rows: Sequence[Any],
    papers: Sequence[PaperVerdicts],
    noise: float | None,
    gpu: str,
    report: str,
    stopped: tuple[int, int] | None = None,
) -> list[str]:
    """The four last lines of a run; the very last is the path of the report.

    Args:
        seconds: wall time. cells: ok, failed, void, not run here.
        rows: all rows of the run. noise: noise floor as a fraction or None.
        gpu: name of the GPU that was used, or "".
        stopped: (cells kept, cells planned) after Ctrl-C.
    """
    good, failed, void, missing = cells
    words = [f"{good} cells ok" if good != 1 else "1 cell ok"]
    if failed:
        words.append(f"{failed} failed")
    if void:
        words.append(f"{void} void")
    if missing:
        words.append(f"{missing} not run here")
    floor = "not measured" if noise is None else f"±{100 * noise:.1f} %"
    start = (
        f"Stopped: {stopped[0]} of {stopped[1]} cells kept, {', '.join(words)}."
        if stopped
        else f"Done in {clock(seconds)}. {', '.join(words)}."
    )
    first = f"{start} Noise floor {floor}.{_checks(rows)}"
    return [first, _evidence_line(papers, gpu), twins_line(rows), f"Report: {report}"]


def check_shares(rows: Iterable[Any]) -> dict[str, float]:
    """Share of the time of a paper's processes that went into comparing their results, by paper;
    "" for all of them. Empty where no row tells."""
    spent: dict[str, list[float]] = {}
    for row in rows:
        if row.paper != "-":
            for name in ("", row.paper):
                total = spent.setdefault(name, [0.0, 0.0])
                total[0] += CHECKING.read(row) or 0.0
                total[1] += row.seconds
    return {name: check / all_ for name, (check, all_) in spent.items() if check}


def _checks(rows: Sequence[Any]) -> str:
    """The share of checks in words, or ""."""
    shares = check_shares(rows)
    if not shares:
        return ""
    papers = {name: share for name, share in shares.items() if name}
    most = max(papers, key=lambda name: papers[name])
    which = f", {100 * papers[most]:.0f} % of {most}" if len(papers) > 1 else ""
    return f" Checks of results took {100 * shares['']:.0f} % of the time{which}."


def _evidence_line(papers: Sequence[PaperVerdicts], gpu: str) -> str:
    verdicts = [v for p in papers for v in p.verdicts]
    strong = sum(v.strength == "strong" for v in verdicts)
    weak = sum(v.strength == "weak" for v in verdicts)
    where = f"Measured on {gpu}" if gpu else "No GPU here"
    said = "1 verdict rests" if strong == 1 else f"{strong} verdicts rest"
    return f"{where}: {said} on strong evidence, {weak} on weak."


def twins_line(rows: Sequence[Any]) -> str:
    """Number of synthetic datasets among those that were used, in words."""
    used = dataset_kinds(rows)
    twins = sum(used.values())
    if not used:
        return "No dataset was used."
    if not twins:
        return f"All {len(used)} datasets are real." if len(used) > 1 else "The dataset is real."
    verb = "is a synthetic twin" if twins == 1 else "are synthetic twins"
    return f"{twins} of {len(used)} datasets {verb}."


def dataset_kinds(rows: Sequence[Any]) -> dict[str, bool]:
    """Dataset -> whether a twin stood in for it, from rows that ran."""
    used: dict[str, bool] = {}
    for row in rows:
        name = row.data.get("dataset")
        if row.status == "ok" and name:
            used[str(name)] = used.get(str(name), False) or bool(row.data.get("twin"))
    return used


def clock(seconds: float) -> str:
    """Minutes and seconds as `3:12`, hours as `1:03:12`."""
    whole = max(0, round(seconds))
    hours, rest = divmod(whole, 3600)
    text = f"{rest // 60}:{rest % 60:02d}"
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else text


def paper_text(found: PaperVerdicts, width: int = WIDTH) -> str:
    """All claims of a paper: letter, id, both values, evidence, and why."""
    lines = [verdict_table([found], width), "", kinds_text([found], width), ""]
    for claim, verdict in zip(found.claims, found.verdicts, strict=True):
        lines.append(fitted(f"{verdict.glyph} {claim.id}   {marks(verdict)}".rstrip(), width))
        lines.append(wrapped(claim.statement, "    ", width))
        here = show(verdict.measured, verdict.unit)
        paper = show(claim.value, claim.unit, printed=True)
        rest = unit_rest(claim.unit)
        lines.append(wrapped(f"paper: {paper}" + (f"; {rest}" if rest else ""), "    ", width))
        measured = f"here: {here}. " if here else ""
        lines.append(wrapped(f"{measured}{verdict.verdict}: {verdict.reason}", "    ", width))
    return "\n".join(lines)


def needs_text(found: PaperVerdicts, width: int = WIDTH) -> str:
    """Claims that cannot be decided on this machine, grouped by the reason."""
    groups: dict[str, list[Verdict]] = {}
    for verdict in found.verdicts:
        if verdict.verdict == "not run here":
            groups.setdefault(verdict.reason, []).append(verdict)
    if not groups:
        return fitted(f"Every claim of {found.paper.name} has a verdict.", width)
    lines = [f"{sum(map(len, groups.values()))} of {len(found.verdicts)} claims not run here"]
    for reason, verdicts in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])):
        lines += ["", wrapped(f"{len(verdicts)}: {reason}", "", width)]
        lines.append(wrapped(", ".join(v.id for v in verdicts), "    ", width))
    return "\n".join(lines)


def marks(verdict: Verdict) -> str:
    """Strength, source and data in words: "weak, timed, twin"."""
    words = [word for word in (verdict.strength, verdict.source) if word]
    if verdict.data in ("twin", "part", "other", "printed"):
        words.append({"part": "part of the data", "other": "other data"}.get(
            verdict.data, verdict.data))  # fmt: skip
    return ", ".join(words)
