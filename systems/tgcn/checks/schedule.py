"""Claims on links and on the round of swaps: sections 1, 4.1 and 4.2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from dgbench.lab.table import Table
from dgbench.systems.base import Check, Claim, Finding
from dgbench.systems.tgcn.checks.common import finding, missing
from dgbench.systems.tgcn.experiments import schedule
from dgbench.systems.tgcn.experiments.common import last_rows, number, panel

NONE: Final = "the experiment 'schedule' did not run"
NOT_PRINTED: Final = "by the published table of a DGX-1; the paper does not print its own"

Rows = Sequence[Any]


def _dgx1(rows: Rows) -> Any | None:
    machine = schedule.PAPERS_MACHINE
    found = last_rows(rows, schedule.NAME, kind=schedule.RING, machine=machine)
    return found[-1] if found else None


def intergroup_cost(claim: Claim, rows: Rows) -> Finding:
    """Pairs of different groups that need a second hop, and those that do not."""
    row = _dgx1(rows)
    if row is None:
        return missing(NONE)
    far, every = (number(row, "links", of="between groups", hops=hops) for hops in (2, None))
    inside = number(row, "links", of="inside groups", hops=1)
    return finding(
        [row],
        evidence="projected",
        measured=f"2 hops for {far} of {every} pairs",
        direction=far > every / 2 and inside == 12,
        reason=f"{NOT_PRINTED}. {every - far} pairs between groups have a link of their own and "
        "cost what a pair inside does; the schedule uses only such pairs",
    )


def two_channels(claim: Claim, rows: Rows) -> Finding:
    """Floats of an embedding on each channel of a doubled link."""
    row = _dgx1(rows)
    if row is None:
        return missing(NONE)
    channels = number(row, "links", of="pair")
    each = schedule.CHANNELS // channels
    return finding(
        [row],
        evidence="projected",
        measured=each,
        direction=each == claim.value,
        target=float(claim.value),
        reason=f"arithmetic: {schedule.CHANNELS} floats over {channels} bonded links; drivers "
        "stripe a copy by themselves, and half of a pair's links are single",
    )


def rounds(claim: Claim, rows: Rows) -> Finding:
    """Iterations of two phases until every device had every part and all are home."""
    row = _dgx1(rows)
    if row is None:
        return missing(NONE)
    iterations = number(row, "parts", of="phases") // 2
    return finding(
        [row],
        evidence="counted",
        measured=iterations,
        holds=iterations == claim.value,
        target=float(claim.value),
        reason="every grid is trained once and all parts are home; followed for "
        f"{', '.join(map(str, schedule.SIZES))} devices, {number(row, 'parts', of='grids')} grids",
    )


def no_two_hop(claim: Claim, rows: Rows) -> Finding:
    """Bytes of Algorithm 6 that pass two links, and of an exchange of all with all."""
    row = _dgx1(rows)
    if row is None:
        return missing(NONE)
    sent = Table.of([row]).where("swapped").numbers("setting", "hops")
    far, other = sent[schedule.LITERAL, 2], sent["gather", 2] / sent["gather", None]
    return finding(
        [row],
        evidence="counted",
        measured=far,
        holds=far == 0,
        reason=f"{NOT_PRINTED}. Without it {other:.0%} of the bytes pass two links; the sum of "
        "gradients can take the same ring",
    )


def dual_links(claim: Claim, rows: Rows) -> Finding:
    """Doubled links among the eight pairs of Algorithm 6, and on the best ring."""
    row = _dgx1(rows)
    if row is None:
        return missing(NONE)
    doubled = Table.of([row]).where("links", of="doubled").numbers("setting")
    used, most = doubled[schedule.LITERAL], doubled[schedule.BEST]
    lean, best = (schedule.exchange_time(row, one) for one in (schedule.LEAN, schedule.BEST))
    slower = lean / best
    return finding(
        [row],
        evidence="analogue",
        measured=f"{used} of 8 pairs, {most} are possible",
        holds=used == most,
        reason=f"{NOT_PRINTED}, and numbers of GPUs vary. As printed, both phases have a pair with "
        f"a single link and wait for it: {slower:.1f} times as long as on the best ring. With GPU "
        "1 and 3 exchanged, and 5 and 7, "
        f"{doubled[schedule.RENAMED]} of 8 are doubled",
    )


def device_vectors(claim: Claim, rows: Rows) -> Finding:
    """Bytes over PCIe of an epoch, vectors on devices against vectors in the host."""
    found = last_rows(rows, schedule.NAME, kind=schedule.VOLUME)
    if not found:
        return missing(NONE)
    less = {
        panel(r): number(r, "swapped", method="host") / number(r, "swapped", method="device")
        for r in found
    }
    return finding(
        found,
        evidence="counted",
        measured={name: f"{factor:.0f}x" for name, factor in less.items()},
        holds=min(less.values()) > 1,
        reason=f"edges alone against edges, states and visiting rows, {schedule.PIECES} intervals "
        "on 8 devices; the fewer edges an interval has for each vertex, the more is saved",
    )


def nvlink(claim: Claim, rows: Rows) -> Finding:
    """Copies between two GPUs and from the host, or the published rates."""
    timed = last_rows(rows, schedule.NAME, kind=schedule.COPIES)
    if timed:
        row, nbytes = timed[-1], schedule.COPIED[-1]
        gpu, host = (
            number(row, "bandwidth", link=link, size=nbytes) / 1e9
            for link in ("gpu to gpu", "host to gpu")
        )
        return finding(
            [row],
            evidence="measured",
            measured={"GPU to GPU": gpu, "host to GPU": host},
            holds=gpu > host,
            reason="GB/s of one large copy"
            + ("" if number(row, "links", of="peers") else "; the GPUs here are no peers"),
        )
    row = _dgx1(rows)
    if row is None:
        return missing(NONE)
    narrow, wide, pcie = (
        number(row, "bandwidth", of=of, link=link) / 1e9
        for of, link in (("narrowest", "nvlink"), ("widest", "nvlink"), (None, "pcie"))
    )
    return finding(
        [row],
        evidence="projected",
        measured={"NVLink": f"{narrow:.0f} to {wide:.0f}", "PCIe": f"{pcie:.0f}"},
        direction=narrow > pcie,
        reason="GB/s as published, nothing was timed: needs two GPUs with NVLink",
    )


CHECKS: Final[dict[str, Check]] = {
    "tgcn-s42-intergroup-cost": intergroup_cost,
    "tgcn-s42-two-channel-split": two_channels,
    "tgcn-s42-schedule-rounds": rounds,
    "tgcn-s42-schedule-no-two-hop": no_two_hop,
    "tgcn-s42-schedule-uses-dual-links": dual_links,
    "tgcn-s41-hbm-embeddings-cut-traffic": device_vectors,
    "tgcn-s1-nvlink-faster-than-pcie": nvlink,
}
