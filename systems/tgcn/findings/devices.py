"""Findings on the cut of a graph and the ring of swaps: sections 1, 4.1, 4.2 and 6.5."""

from __future__ import annotations

from typing import Final

from dgbench.lab.paper import Claim, Finding
from dgbench.lab.table import Table, number
from dgbench.lab.verbs import last, last_of_each, rows_with, says
from dgbench.systems.tgcn import exchange_runs
from dgbench.systems.tgcn.common import last_rows
from dgbench.systems.tgcn.experiments import partition, schedule
from dgbench.systems.tgcn.findings.common import DID_NOT_RUN, Fields, Rows, multiple
from dgbench.systems.tgcn.printed import table2
from dgbench.systems.tgcn.settings import panel

# The cut of time and vertices: sections 4.1 and 6.5.

ZIPF = rows_with(
    partition.NAME, DID_NOT_RUN.format(partition.NAME), last, kind=partition.DEGREES
)  # fmt: skip
CUT = rows_with(partition.NAME, DID_NOT_RUN.format(partition.NAME), last, kind=partition.SHARE)
EVEN: Final = 1.5
"""Factor up to which the largest grid is as large as with uniform degrees."""
SMALL: Final = 5.0
"""Percent of an epoch up to which a share is small."""


def degree_independent(claim: Claim, rows: Rows) -> Finding:
    """Check the effect of degrees at the same sizes: fill of the grids, and time of the sort."""
    graphs = Table.of(last_rows(rows, partition.NAME, kind=partition.FILL))
    busy = graphs.where("busy_devices", method="equal", ranks=8)
    seen = ", ".join(f"{panel(one.row)} {one.value:.1f}" for one in busy)

    def judge(claim: Claim, found: Rows) -> Fields:
        row, skew = found[0], partition.SKEWS[-1]
        grown = {
            order: partition.largest_grid(row, order, "equal")[skew] for order in ("rank", "mixed")
        }
        slower = partition.sort_time(row, skew)
        together = number(row, "busy_devices", setting="mixed", method="equal", skew=skew)
        return {
            "measured": {
                "largest grid over uniform, ids by degree": grown["rank"],
                "largest grid over uniform, ids mixed": grown["mixed"],
                "devices of 8 that train at a time": together,
            },
            "holds": max(grown.values()) <= EVEN,
            "reason": "ranges of vertices do not depend on degrees and the sort takes "
            f"{slower:.2f} times as long as with uniform ones, but grids are filled by degree: "
            f"with an exponent of {skew:g} the largest one has {grown['mixed']:.0f} times the "
            "edges even where ids are mixed"
            + (f"; devices of 8 that train at a time: {seen}" if seen else ""),
        }

    return says(ZIPF, judge)(claim, rows)


def share_of_time(claim: Claim, rows: Rows) -> Fields:
    """Percent of an epoch here, and of the printed time at the rate measured here."""
    shares = Table.of(rows).where("time_share").numbers("phase", "setting")
    share, plan, printed = (
        100 * shares[key] for key in (("cut", None), ("plan", None), ("cut", "printed"))
    )
    return {
        "measured": share,
        "direction": share < SMALL,
        "target": claim.value,
        "reason": "the sort alone; with negatives, rows and counts of every interval it is "
        f"{plan:.1f} % here. At {number(rows[0], 'throughput') / 1e6:.0f} M "
        f"edges/s of one thread the sampled half of Twitter takes {printed:.2f} % of the printed "
        f"{table2('tgcn', 'total')[partition.TRAINED]:.0f} s",
    }


# The ring of swaps: sections 1, 4.1 and 4.2.

NO_SCHEDULE: Final = DID_NOT_RUN.format(schedule.NAME)
DGX1 = rows_with(
    schedule.NAME, NO_SCHEDULE, last, kind=schedule.RING, machine=schedule.PAPERS_MACHINE
)
VOLUME = rows_with(schedule.NAME, NO_SCHEDULE, last_of_each, kind=schedule.VOLUME)
COPIES = rows_with(schedule.NAME, NO_SCHEDULE, last, kind=schedule.COPIES)
NOT_PRINTED: Final = "by the published table of a DGX-1; the paper does not print its own"


def intergroup_cost(claim: Claim, rows: Rows) -> Fields:
    """Pairs of different groups that need a second hop, and those that do not."""
    far, every = (number(rows[0], "links", of="between groups", hops=hops) for hops in (2, None))
    inside = number(rows[0], "links", of="inside groups", hops=1)
    return {
        "measured": f"2 hops for {far} of {every} pairs",
        "direction": far > every / 2 and inside == 12,
        "reason": f"{NOT_PRINTED}. {every - far} pairs between groups have a link of their own and "
        "cost what a pair inside does; the schedule uses only such pairs",
    }


def two_channels(claim: Claim, rows: Rows) -> Fields:
    """Floats of an embedding on each channel of a doubled link."""
    channels = number(rows[0], "links", of="pair")
    each = schedule.CHANNELS // channels
    return {
        "measured": each,
        "direction": each == claim.value,
        "target": claim.value,
        "reason": f"arithmetic: {schedule.CHANNELS} floats over {channels} bonded links; drivers "
        "stripe a copy by themselves, and half of a pair's links are single",
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
        "reason": f"{NOT_PRINTED}. Without it {other:.0%} of the bytes pass two links; the sum of "
        "gradients can take the same ring",
    }


def dual_links(claim: Claim, rows: Rows) -> Fields:
    """Doubled links among the eight pairs of Algorithm 6, and on the best ring."""
    doubled = Table.of(rows).where("links", of="doubled").numbers("setting")
    used, most = doubled[exchange_runs.LITERAL], doubled[exchange_runs.BEST]
    lean, best = (
        schedule.exchange_time(rows[0], one) for one in (exchange_runs.LEAN, exchange_runs.BEST)
    )
    return {
        "measured": f"{used} of 8 pairs, {most} are possible",
        "holds": used == most,
        "reason": f"{NOT_PRINTED}, and numbers of GPUs vary. As printed, both phases have a pair "
        f"with a single link and wait for it: {lean / best:.1f} times as long as on the best ring. "
        "With GPU 1 and 3 exchanged, and 5 and 7, "
        f"{doubled[exchange_runs.RENAMED]} of 8 are doubled",
    }


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
        "reason": "GB/s as published, nothing was timed: needs two GPUs with NVLink",
    }


def nvlink(claim: Claim, rows: Rows) -> Finding:
    """Copies that were timed, or the published rates."""
    if COPIES(rows):
        return says(COPIES, copy_rates)(claim, rows)
    return says(DGX1, published_rates)(claim, rows)
