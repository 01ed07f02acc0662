"""Verdicts by kind of claim: what is said of performance stands apart from counts of data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from dgbench.harness.claims.verdict import AGAINST, FOR, GLYPHS, OPEN, STRONG, Verdict

KINDS: Final[dict[str, tuple[str, ...]]] = {
    "speed-ups": ("speedup", "scaling"),
    "times and rates": ("time", "throughput", "overhead"),
    "orders": ("ordering",),
    "memory": ("memory",),
    "traffic": ("volume", "hit_rate"),
    "accuracy": ("accuracy",),
    "use of devices": ("utilisation",),
    "data and counts": ("dataset_stat", "complexity", "similarity"),
}
"""Words for people -> kinds of the ledger."""
PERFORMANCE: Final = ("speed-ups", "times and rates", "memory", "traffic", "use of devices")
"""Kinds of claims that say how well a system performs."""


@dataclass(frozen=True, slots=True)
class KindCounts:
    """Verdicts of one kind of claim.

    Attributes:
        kind: see `KINDS`. counts: claims per glyph.
    """

    kind: str
    counts: dict[str, int]

    @property
    def total(self) -> int:
        """Number of claims, without those by definition."""
        return sum(self.counts.values()) - self.counts["="]

    def sum(self, glyphs: Iterable[str]) -> int:
        """Number of claims with one of the glyphs."""
        return sum(self.counts[glyph] for glyph in glyphs)

    @property
    def decided(self) -> int:
        """Number of claims with a strong verdict."""
        return self.sum(STRONG)

    @property
    def words(self) -> str:
        """Counts in words: `speed-ups: 3 reproduced, 2 contradicted, 36 not run here`."""
        said = [f"{n} {GLYPHS[glyph]}" for glyph, n in self.counts.items() if n]
        return f"{self.kind}: {', '.join(said)}"


def kind_of(claim: Any) -> str:
    """The words for a claim's kind."""
    return next((words for words, kinds in KINDS.items() if claim.kind in kinds), claim.kind)


def by_kind(pairs: Iterable[tuple[Any, Verdict]]) -> list[KindCounts]:
    """Verdicts by kind, in the order of `KINDS`; kinds without a claim are left out.

    Args:
        pairs: claims with their verdicts.
    """
    found: dict[str, dict[str, int]] = {}
    for claim, verdict in pairs:
        counts = found.setdefault(kind_of(claim), dict.fromkeys(GLYPHS, 0))
        counts[verdict.glyph] += 1
    ordered = sorted(found, key=lambda kind: (*KINDS, kind).index(kind))
    return [KindCounts(kind, found[kind]) for kind in ordered]


def performance(pairs: Iterable[tuple[Any, Verdict]]) -> KindCounts:
    """Verdicts of all claims on performance together."""
    counts = dict.fromkeys(GLYPHS, 0)
    for one in by_kind(pairs):
        if one.kind in PERFORMANCE:
            for glyph, n in one.counts.items():
                counts[glyph] += n
    return KindCounts("performance", counts)


def headline(found: KindCounts, where: str) -> str:
    """A heading that could be false: how many claims on performance are decided, and which way."""
    strong_for = found.sum(glyph for glyph in FOR if glyph in STRONG)
    against = found.sum(glyph for glyph in AGAINST if glyph in STRONG)
    decided = "none is decided" if not found.decided else (
        f"{found.decided} decided ({strong_for} for, {against} against)"
    )  # fmt: skip
    weak = found.sum(("S", "s")), found.sum(("O",))
    return (
        f"{found.total} claims on performance, {decided} on {where}; weak evidence "
        f"supports {weak[0]} and opposes {weak[1]}, {found.sum(OPEN)} are open"
    )
