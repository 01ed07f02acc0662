"""Merging runs: one verdict per claim and machine, and on top the strongest evidence.

Evidence is ranked: strong, weak, none. Evidence against a claim has the rank of evidence for it; a
run that decided nothing about a claim ranks as none. Within one rank the newest run counts, unless
the claim is on speed and machines of that rank take different sides: then neither side is taken.
Runs of others stand behind all of one's own, as machines apart. The order in which runs are given
changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from dgbench.harness.claims.verdict import GLYPHS, OPEN, Verdict
from dgbench.harness.report.run import RunData
from dgbench.harness.report.sections import PaperSection
from dgbench.harness.report.site import (
    FRONT_OF_RUN,
    FRONT_OF_SITE,
    ClaimOnSite,
    MachineOnSite,
    OlderRun,
    PaperOnSite,
    SiteData,
)

OF_A_MACHINE: Final = ("timed", "probed")
"""Sources of verdicts that hold for the machine they were measured on."""
RANKS: Final = {"strong": 3, "weak": 2}


def strength(verdict: Verdict) -> int:
    """Rank of a verdict's evidence, 0 where nothing was found."""
    return RANKS[verdict.strength] if verdict.side else int(verdict.glyph in OPEN)


def newness(run: RunData) -> tuple[str, str, str]:
    """Orders runs by the time of their start; slugs and ids decide between equal ones."""
    return str(run.info.get("started", "")), run.slug, run.store.run


def merge_claims(sections: Sequence[tuple[RunData, PaperSection]]) -> list[ClaimOnSite]:
    """Every claim of one paper with its strongest evidence, in the order of the ledger."""
    paper = sections[0][1].paper
    merged = []
    for place, claim in enumerate(sections[0][1].verdicts.claims):
        found = [(run, shown.verdicts.verdicts[place]) for run, shown in sections]
        found.sort(
            key=lambda item: (not item[0].label, strength(item[1]), newness(item[0])), reverse=True
        )
        machines: dict[str, tuple[RunData, Verdict]] = {}
        for run, verdict in found:
            machines.setdefault(run.machine_slug, (run, verdict))
        best = list(machines.values())
        merged.append(
            ClaimOnSite(
                paper=paper.name,
                title=paper.title,
                claim=claim,
                verdict=over_machines(best),
                run=best[0][0],
                all=best,
                disagreement=disagreement(best),
            )
        )
    return merged


def over_machines(found: Sequence[tuple[RunData, Verdict]]) -> Verdict:
    """The first of verdicts by machine; undecided where timed ones of its rank take both sides.

    What is counted does not depend on a machine: there the newest run holds.

    Args:
        found: runs with their verdicts, the strongest evidence first.
    """
    run, first = found[0]
    alike = [
        verdict
        for other, verdict in found
        if bool(other.label) == bool(run.label)
        and strength(verdict) == strength(first)
        and verdict.source in OF_A_MACHINE
    ]
    if first.source not in OF_A_MACHINE or not {v.side for v in alike} >= {"for", "against"}:
        return first
    return msgspec.structs.replace(
        first,
        verdict=GLYPHS["u"],
        glyph="u",
        agreement="undecided",
        reason="it differs between machines",
    )


def disagreement(found: Sequence[tuple[RunData, Verdict]]) -> str:
    """A sentence where machines take different sides, else ""."""
    if not {v.side for _, v in found} >= {"for", "against"}:
        return ""
    good = [_one(run, v) for run, v in found if v.side == "for"]
    bad = [_one(run, v) for run, v in found if v.side == "against"]
    return f"Differs between machines: for it on {_list(good)}, against it on {_list(bad)}."


def _one(run: RunData, verdict: Verdict) -> str:
    return f"{run.machine_name} ({verdict.verdict})"


def _list(words: Sequence[str]) -> str:
    return " and ".join(words)


def assemble(
    shown: Sequence[tuple[RunData, PaperSection]],
    runs: Sequence[RunData],
    *,
    merged: bool,
    parts: Iterable[str] = (),
    older: Iterable[OlderRun] = (),
) -> SiteData:
    """The site of some runs from what each shows of its papers."""
    runs = sorted(runs, key=newness, reverse=True)
    by_paper: dict[str, list[tuple[RunData, PaperSection]]] = {}
    for run, section in sorted(shown, key=lambda item: newness(item[0]), reverse=True):
        by_paper.setdefault(section.name, []).append((run, section))
    papers = []
    for _, sections in sorted(by_paper.items()):
        sections.sort(key=lambda item: (not item[0].label, _run_strength(item[1])), reverse=True)
        papers.append(PaperOnSite(sections[0][1].paper, merge_claims(sections), sections))
    return SiteData(
        runs=runs,
        front=FRONT_OF_SITE if merged else FRONT_OF_RUN,
        papers=papers,
        machines=_machines(runs),
        parts=tuple(parts),
        older=tuple(older),
    )


def _run_strength(section: PaperSection) -> tuple[int, ...]:
    """Counts of verdicts by rank of evidence, strongest first; then the newest run, by the sort."""
    ranks = [strength(v) for v in section.verdicts.verdicts]
    return tuple(ranks.count(rank) for rank in (3, 2, 1))


def _machines(runs: Sequence[RunData]) -> list[MachineOnSite]:
    by_slug: dict[str, list[RunData]] = {}
    for run in runs:
        by_slug.setdefault(run.machine_slug, []).append(run)
    found = []
    for slug, own in sorted(by_slug.items()):
        device = "cuda" if any(run.device == "cuda" for run in own) else "cpu"
        found.append(MachineOnSite(slug, own[0].machine_name, device))
    return found
