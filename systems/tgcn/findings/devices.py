"""Findings on the cut of a graph and the ring of swaps: sections 1, 4.1, 4.2 and 6.5."""

from __future__ import annotations

from typing import Final

from dgbench.lab.evidence import some
from dgbench.lab.paper import Check, Claim, Finding
from dgbench.lab.table import Table, number
from dgbench.lab.verbs import Judge, last, last_of_each, readings, rows_with, says
from dgbench.systems.tgcn import exchange_runs
from dgbench.systems.tgcn.common import pooled
from dgbench.systems.tgcn.experiments import partition, schedule
from dgbench.systems.tgcn.findings.common import (
    DID_NOT_RUN,
    Fields,
    Rows,
    beyond,
    decided,
    multiple,
    shown,
)
from dgbench.systems.tgcn.settings import panel

# The cut of time and vertices: sections 4.1 and 6.5.

SORTED = rows_with(partition.NAME, DID_NOT_RUN.format(partition.NAME), kind=partition.SORT)
ZIPF = rows_with(
    partition.NAME, DID_NOT_RUN.format(partition.NAME), last, kind=partition.DEGREES
)  # fmt: skip
CUT = rows_with(partition.NAME, DID_NOT_RUN.format(partition.NAME), kind=partition.SHARE)
EVEN: Final = 1.5
"""Factor up to which the largest grid is as large as with uniform degrees."""


def fill_of(order: str) -> Judge:
    """Largest grid with degrees of a power law over that with uniform ones, at the same sizes."""

    def judge(claim: Claim, rows: Rows) -> Fields:
        skew = partition.SKEWS[-1]
        grown = partition.largest_grid(rows[0], order, "equal")[skew]
        together = number(rows[0], "busy_devices", setting=order, method="equal", skew=skew)
        return {
            "measured": grown,
            "holds": grown <= EVEN,
            "reason": f"edges of the largest grid with an exponent of {skew:g}; {together:.1f} "
            "devices of 8 train at a time",
        }

    return judge


def cutting_time(claim: Claim, rows: Rows) -> Fields | None:
    """Time of the cut with degrees of a power law over that with uniform ones."""
    skew = partition.SKEWS[-1]
    ratio = pooled([[(row, partition.sort_time(row, skew)) for row in rows]])
    if ratio is None:
        return None
    return {
        **shown(ratio),
        **decided([-beyond(ratio, EVEN)]),
        "reason": f"seconds with an exponent of {skew:g} over those with uniform degrees",
    }


degree_independent: Final[Check] = readings(
    **{
        "edges of a grid, ids by degree": says(ZIPF, fill_of("rank")),
        "edges of a grid, ids mixed": says(ZIPF, fill_of("mixed")),
        "time of the cut": says(SORTED, cutting_time),
    }
)


def part_of_epoch(phase: str) -> Judge:
    """Percent of an epoch here that a part of partitioning takes."""

    def judge(claim: Claim, rows: Rows) -> Fields:
        shares = Table.of(rows).where("time_share", phase=phase, setting=None).values
        return {
            "measured": 100 * sum(shares) / len(shares),
            "target": claim.value,
            "reason": f"of {some(len(shares), 'process', 'processes')}",
        }

    return judge


share_of_time: Final[Check] = readings(
    **{
        "the sort alone": says(CUT, part_of_epoch("cut")),
        "with negatives, rows and counts of every interval": says(CUT, part_of_epoch("plan")),
    }
)


# The ring of swaps: sections 1, 4.1 and 4.2.

NO_SCHEDULE: Final = DID_NOT_RUN.format(schedule.NAME)
DGX1 = rows_with(
    schedule.NAME, NO_SCHEDULE, last, kind=schedule.RING, machine=schedule.PAPERS_MACHINE
)
VOLUME = rows_with(schedule.NAME, NO_SCHEDULE, last_of_each, kind=schedule.VOLUME)
COPIES = rows_with(schedule.NAME, NO_SCHEDULE, last, kind=schedule.COPIES)
PAIRS: Final = 12
"""Ordered pairs of different GPUs of a group of four."""
TABLE: Final = "published table of links of a DGX-1"
"""Model of the paper's machine, whose own table is not printed."""


def intergroup_cost(claim: Claim, rows: Rows) -> Fields:
    """Links that a pair of different groups passes, on average, over those inside a group."""
    far, every = (number(rows[0], "links", of="between groups", hops=hops) for hops in (2, None))
    inside = number(rows[0], "links", of="inside groups", hops=1)
    return {
        "measured": (1 + far / every) / (2 - inside / PAIRS),
        "target": 2.0,
        "model": TABLE,
        "reason": f"2 hops for {far} of {every} pairs; {every - far} have a link of their own and "
        "cost what a pair inside does; the schedule uses only such pairs",
    }


def two_channels(claim: Claim, rows: Rows) -> Fields:
    """Floats of an embedding on each channel of a doubled link."""
    channels = number(rows[0], "links", of="pair")
    return {
        "measured": schedule.CHANNELS // channels,
        "target": claim.value,
        "reason": f"{schedule.CHANNELS} floats over {channels} bonded links; drivers stripe a copy "
        "by themselves, and half of a pair's links are single",
    }


def swap_rounds(claim: Claim, rows: Rows) -> Fields:
    """Iterations of two phases until every device had every part and all are home."""
    iterations = number(rows[0], "parts", of="phases") // 2
    return {
        "measured": iterations,
        "holds": iterations == claim.value,
        "target": claim.value,
        "reason": "every grid is trained once and all parts are home; followed for "
        f"{', '.join(map(str, exchange_runs.SIZES))} devices, "
        f"{number(rows[0], 'parts', of='grids')} grids",
    }


def no_two_hop(claim: Claim, rows: Rows) -> Fields:
    """Bytes of Algorithm 6 that pass two links, and of an exchange of all with all."""
    sent = Table.of(rows).where("swapped").numbers("setting", "hops")
    far, other = sent[exchange_runs.LITERAL, 2], sent["gather", 2] / sent["gather", None]
    return {
        "measured": far,
        "holds": far == 0,
        "proxy": f"the {TABLE}",
        "reason": f"without the schedule {other:.0%} of the bytes pass two links; the sum of "
        "gradients can take the same ring",
    }


def doubled_links(numbering: str) -> Judge:
    """Doubled links among the eight pairs of Algorithm 6, and on the best ring."""

    def judge(claim: Claim, rows: Rows) -> Fields:
        doubled = Table.of(rows).where("links", of="doubled").numbers("setting")
        used, most = doubled[numbering], doubled[exchange_runs.BEST]
        return {
            "measured": f"{used} of 8 pairs, {most} are possible",
            "holds": used == most,
            "proxy": f"the {TABLE}",
            "reason": "numbers of GPUs vary between machines and Figure 5 shows none",
        }

    return judge


dual_links: Final[Check] = readings(
    **{
        "GPUs as published": says(DGX1, doubled_links(exchange_runs.LITERAL)),
        "GPUs 1 and 3, 5 and 7 exchanged": says(DGX1, doubled_links(exchange_runs.RENAMED)),
    }
)


def device_vectors(claim: Claim, rows: Rows) -> Fields:
    """Bytes over PCIe of an epoch, vectors on devices against vectors in the host."""
    less = {
        panel(row): number(row, "swapped", method="host") / number(row, "swapped", method="device")
        for row in rows
    }
    return {
        "measured": {name: multiple(factor, ".0f") for name, factor in less.items()},
        "holds": min(less.values()) > 1,
        "reason": "edges alone against edges, states and visiting rows, "
        f"{exchange_runs.PIECES} intervals on 8 devices; the fewer edges an interval has for each "
        "vertex, the more is saved",
    }


def copy_rates(claim: Claim, rows: Rows) -> Fields:
    """Copies between two GPUs and from the host."""
    rates = Table.of(rows).where("bandwidth", size=exchange_runs.COPIED[-1]).numbers("link")
    gpu, host = (rates[link] / 1e9 for link in ("gpu to gpu", "host to gpu"))
    return {
        "measured": {"GPU to GPU": gpu, "host to GPU": host},
        "holds": gpu > host,
        "reason": "GB/s of one large copy"
        + ("" if number(rows[0], "links", of="peers") else "; the GPUs here are no peers"),
    }


def published_rates(claim: Claim, rows: Rows) -> Fields:
    """Rates of links as published."""
    rates = Table.of(rows).where("bandwidth").numbers("link", "of")
    narrow, wide, pcie = (
        rates[key] / 1e9 for key in (("nvlink", "narrowest"), ("nvlink", "widest"), ("pcie", None))
    )
    return {
        "measured": {"NVLink": f"{narrow:.0f} to {wide:.0f}", "PCIe": f"{pcie:.0f}"},
        "direction": narrow > pcie,
        "model": TABLE,
        "reason": "GB/s as published, nothing was timed: that needs two GPUs with NVLink",
    }


def nvlink(claim: Claim, rows: Rows) -> Finding:
    """Copies that were timed, or the published rates."""
    if COPIES(rows):
        return says(COPIES, copy_rates)(claim, rows)
    return says(DGX1, published_rates)(claim, rows)
