"""Data of the pages: one run or several, as papers, claims and machines.

A site of one run and a merged site have the same shape, so one set of templates writes both.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from dgbench.harness.claims.kinds import headline, performance
from dgbench.harness.claims.verdict import GLYPHS, Verdict
from dgbench.harness.figures.draw import DrawnFigure
from dgbench.harness.report.devices import device_notes
from dgbench.harness.report.run import RunData
from dgbench.harness.report.sections import PaperSection

FRONT_OF_RUN: Final = "report.html"
FRONT_OF_SITE: Final = "index.html"


@dataclass(frozen=True, slots=True)
class ClaimOnSite:
    """A claim with its strongest evidence, and what every machine found.

    Attributes:
        paper, title: name and title of its paper.
        claim: as in the ledger. verdict: the strongest evidence, see `merge`. run: that gave it.
        all: one verdict per machine that ran the paper, strongest first.
        disagreement: a sentence where machines take different sides, else "".
    """

    paper: str
    title: str
    claim: Any
    verdict: Verdict
    run: RunData
    all: list[tuple[RunData, Verdict]]
    disagreement: str = ""

    @property
    def machines(self) -> dict[str, str]:
        """Machine's slug -> glyph there."""
        return {run.machine_slug: v.glyph for run, v in self.all}


@dataclass(frozen=True, slots=True)
class PaperOnSite:
    """A paper with all its claims, merged over machines, and one section per run of it.

    Attributes:
        paper: the plugin. claims: every claim of the ledger once, in its order.
        sections: what each run shows of the paper, the run with the strongest evidence first.
    """

    paper: Any
    claims: list[ClaimOnSite]
    sections: list[tuple[RunData, PaperSection]]

    @property
    def name(self) -> str:
        """The paper's name."""
        return self.paper.name

    @property
    def title(self) -> str:
        """The paper's title."""
        return self.paper.title

    @property
    def counts(self) -> dict[str, int]:
        """Claims per glyph, all of them; they sum to `total`."""
        return count_claims(self.claims)

    @property
    def void(self) -> int:
        """Claims whose rows are all void."""
        return sum(claim.verdict.void for claim in self.claims)

    @property
    def total(self) -> int:
        """Number of claims that the paper makes."""
        return len(self.claims)

    @property
    def headline(self) -> str:
        """A heading that could be false, from the run with the strongest evidence; runs on a GPU
        that was idle are held against those without one."""
        return "; ".join([self.sections[0][1].headline, *device_notes(self.sections)])


@dataclass(frozen=True, slots=True)
class MachineOnSite:
    """A machine that runs are of.

    Attributes:
        slug: `amd-epyc-2-cores`. name: "2 cores, AMD EPYC". device: `cpu` or `cuda`.
    """

    slug: str
    name: str
    device: str


@dataclass(frozen=True, slots=True)
class OlderRun:
    """A run of a paper that began before its contenders computed what they compute today.

    Attributes:
        run: whose rows are not shown. title, paper: title and name of its paper.
        since: day from which runs of the paper are shown.
    """

    run: RunData
    title: str
    paper: str
    since: str

    @property
    def command(self) -> str:
        """The command that measures it anew."""
        what = "arena" if self.paper == "arena" else f"reproduce {self.paper}"
        device = " --device cuda" if self.run.device == "cuda" else ""
        return f"dgbench {what} --preset {self.run.info.get('preset') or 'quick'}{device}"


@dataclass(frozen=True, slots=True, repr=False)  # of all rows it would be gigabytes
class SiteData:
    """All that pages show.

    Attributes:
        runs: newest first, then by slug. front: file name of the first page.
        papers: by name. machines: in the order of their slugs.
        parts: which subject pages there are: `systems`, `datasets`, `compare`.
        across: by paper, the figure of its claimed factors on each machine.
        older: runs that are not shown, as they are older than what they would be taken for.
    """

    runs: list[RunData]
    front: str
    papers: list[PaperOnSite]
    machines: list[MachineOnSite]
    parts: tuple[str, ...] = ()
    across: dict[str, DrawnFigure] = field(default_factory=dict)
    older: tuple[OlderRun, ...] = ()

    @property
    def merged(self) -> bool:
        """True if this is a merged site rather than the report in a run's folder."""
        return self.front == FRONT_OF_SITE

    @property
    def claims(self) -> list[ClaimOnSite]:
        """Every claim of every paper."""
        return [claim for paper in self.papers for claim in paper.claims]

    @property
    def counts(self) -> dict[str, int]:
        """Claims per glyph over all papers."""
        return count_claims(self.claims)

    @property
    def where(self) -> str:
        """`3 machines`, or the one machine in words."""
        if len(self.machines) != 1:
            return f"{len(self.machines)} machines"
        machine = self.machines[0]
        return machine.name + (" without a GPU" if machine.device == "cpu" else "")

    @property
    def headline(self) -> str:
        """A heading that could be false."""
        found = performance((claim.claim, claim.verdict) for claim in self.claims)
        so_far = ", so far" if any(run.partial for run in self.runs) and not self.merged else ""
        return headline(found, self.where) + so_far


def count_claims(claims: list[ClaimOnSite]) -> dict[str, int]:
    """Claims per glyph, all keys in the fixed order."""
    counts = dict.fromkeys(GLYPHS, 0)
    for claim in claims:
        counts[claim.verdict.glyph] += 1
    return counts
