"""Claims on the graph difference and on smoothing (3.2, 5.4, 6.2, Figure 4).

Most are about the time of a transfer. Without a CUDA device that is projected: bytes are counted
exactly, and a link is busy for as long as it has bytes to carry. What a CPU measures is named
beside it, but decides nothing: it copies at the speed of memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from dgbench.lab.compare import Ratio
from dgbench.lab.evidence import finding, missing, some
from dgbench.lab.table import Table, number, rows_of
from dgbench.systems.base import Claim, Finding
from dgbench.systems.esdg.experiments.fig4 import BLOCKS
from dgbench.systems.esdg.experiments.fig4_rows import (
    BASE,
    GD,
    byte_rows,
    gain_of_bytes,
    gain_of_rank,
    timed_gains,
    timed_rows,
    transfer_share,
)
from dgbench.systems.esdg.experiments.settings import (
    BY_NAME,
    GRAPHS,
    MODEL_TITLES,
    MODELS,
    NEEDS_CUDA,
    RANKS,
    SMOOTHING,
)
from dgbench.systems.esdg.partition import block_ranges

SMOOTHED = tuple(model for model in MODELS if SMOOTHING[model] != "none")
NAMED = frozenset(graph.name for graph in GRAPHS)
"""Graphs that the paper names."""
LINK = "model of a link"
"""Bytes that are counted take their time over a link, and nothing else does."""
RAW = tuple(model for model in MODELS if SMOOTHING[model] == "none")
SIGNIFICANT = 0.1
"""Share of an epoch from which a transfer counts as significant; the paper gives no number."""
NO_BYTES = "bytes of Figure 4 were not counted in this run"
NO_TIMES = "no epoch of Figure 4 was timed in this run"


def transfer(claim: Claim, rows: Sequence[Any]) -> Finding:
    """The largest gain in transfer time among the paper's graphs and models.

    Where nothing was copied to a GPU it is that of the bytes over a link, of the matrices alone and
    of all that travels: the paper does not say which of the two its figure shows.
    """
    target = float(claim.value["high"])
    timed = {k: r for k, r in timed_gains(rows, "transfer").items() if k[1] in SMOOTHED}
    on_cuda = _on_cuda(rows, timed)
    if on_cuda:
        return _largest(rows, on_cuda, target=target)
    counted = [row for row in byte_rows(rows) if row.params["dataset"] in NAMED] or byte_rows(rows)
    if not counted:
        return missing(f"{NO_BYTES}; times need CUDA" if timed else NEEDS_CUDA)
    beside = ""
    if timed:
        low, high = (pick(ratio.value for ratio in timed.values()) for pick in (min, max))
        beside = f"copied in memory on this CPU {low:.2g}x to {high:.2g}x"
    each = {"matrices": gain_of_bytes, "matrices and inputs": gain_of_rank}
    found = {}
    for name, gain in each.items():
        gains = {(row.params["dataset"], m): gain(row, m) for row in counted for m in SMOOTHED}
        best = max(gains, key=lambda key, gains=gains: gains[key])
        found[name] = finding(
            counted,
            model=LINK,
            measured=gains[best],
            direction=gains[best] > 1,
            target=target,
            reason=f"{_where(*best)}, the largest of {len(gains)} from {min(gains.values()):.2g}x",
        )
    return Finding(readings=found, reason=beside)


def _largest(rows: Sequence[Any], gains: dict[Any, Ratio], *, target: float) -> Finding:
    """The largest of timed gains; it rests on the rows of all of them."""
    (name, model), best = max(gains.items(), key=lambda item: item[1].value)
    names = {row for ratio in gains.values() for row in ratio.rows}
    return finding(
        [row for row in timed_rows(rows) if row.id in names],
        measured=best.value,
        low=best.low,
        high=best.high,
        direction=best.value > 1,
        target=target,
        processes=min(ratio.processes for ratio in gains.values()),
        reason=f"{_where(name, model)}, the largest of {len(gains)}",
    )


def overall(claim: Claim, rows: Sequence[Any]) -> Finding:
    """The largest cut of an epoch, in percent, among models of smoothed snapshots."""
    found = {k: r for k, r in timed_gains(rows).items() if k[1] in SMOOTHED}
    if not found:
        return missing(NO_TIMES)
    result = _largest(rows, _on_cuda(rows, found) or found, target=float(claim.value["high"]))
    result.measured = _percent(result.measured)
    if result.low is not None and result.high is not None:
        result.low, result.high = _percent(result.low), _percent(result.high)
    return result


def bytes_sent(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Bytes of everything that was encoded against 16 (a + r) + 4 n and 20 n."""
    encoded, made = rows_of(rows, experiment="encoding"), _smoothed(rows)
    if not encoded and not made:
        return missing("nothing was encoded in this run")
    wrong = [row for row in encoded if _sent(row, format="sent") != _sent(row, format="formula")]
    for row in made:
        life = number(row, "smoothing_length", of="made")
        formats = ("sent", "forced")
        if any(_sent(row, format=f, of="made") != _sent(row, format=f, life=life) for f in formats):
            wrong.append(row)
    snapshots = sum(number(row, "snapshots", 1) for row in encoded)
    snapshots += sum(number(row, "snapshots", of="made") for row in made)
    return finding(
        [*encoded, *made],
        measured=f"16 (a + r) + 4 n bytes for {snapshots} snapshots" if not wrong else "others",
        holds=not wrong,
        reason="other bytes on " + ", ".join(r.params["dataset"] for r in wrong) if wrong else
        "the first snapshot, and any that its difference would exceed, takes 20 n",
    )  # fmt: skip


def _sent(row: Any, **dims: Any) -> int:
    return number(row, "topology_sent", **dims)


def _smoothed(rows: Sequence[Any]) -> list[Any]:
    """Rows of the sweep of lengths with one that was made."""
    return Table.of(rows, experiment="smoothing").where("smoothing_length", of="made").rows


def benefit_fraction(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Snapshots that can go as a difference, counted for every number of blocks and ranks."""
    counted = _real_first(byte_rows(rows))
    if not counted:
        return missing(NO_BYTES)
    holds = True
    for row in counted:
        steps = number(row, "snapshots")
        for blocks in BLOCKS:
            sizes = [len(block) for block in block_ranges(steps, blocks)]
            for ranks in RANKS:
                wanted = sum(max(0, bsize - ranks) for bsize in sizes)
                kept = number(row, "snapshots", None, of="kept", blocks=blocks, ranks=ranks)
                holds &= kept == wanted
    engine = [r for r in _real_first(timed_rows(rows)) if _differences(r)]
    for row in engine:  # twice an epoch; in older rows larger ones went plain
        most = 2 * (number(row, "snapshots") - number(row, "timeline_blocks"))
        holds &= _differences(row) <= most
    blocks = " and ".join(map(str, BLOCKS))
    shown = f"P = 1 to {RANKS[-1]}, {blocks} blocks, {some(len(counted), 'graph')}"
    return finding(
        [*counted, *engine],
        measured=dict(claim.value) if holds else "other shares",
        holds=holds,
        reason=shown,
    )


def _differences(row: Any) -> int:
    """Snapshots that a timed epoch of the difference sent as such."""
    return number(row, "snapshots", setting=GD, format="difference")


def gains_shrink(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Fewer bytes by ranks: never more on more ranks, and less on the most than on one."""
    counted = _real_first(byte_rows(rows))
    if not counted:
        return missing(NO_BYTES)
    falls = []
    for row in counted:
        for model in SMOOTHED:
            gains = [gain_of_bytes(row, model, ranks) for ranks in RANKS]
            steady = all(b <= a for a, b in pairwise(gains))
            falls.append((steady and gains[-1] < gains[0], gains[0], gains[-1]))
    first, last = (median(fall[at] for fall in falls) for at in (1, 2))
    return finding(
        counted,
        model=LINK,
        measured=f"{first:.2g}x on one rank, {last:.2g}x on {RANKS[-1]} (median)",
        holds=all(fall[0] for fall in falls),
        reason=f"bytes of the matrices of {some(len(counted), 'graph')}, one block",
    )


def cdgcn(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Check the gains of the difference on raw snapshots of real data against their bound."""
    target = float(claim.value["high"])
    timed = {k: r for k, r in timed_gains(rows, "transfer").items() if k[1] in RAW and not r.twin}
    on_cuda = _on_cuda(rows, timed)
    if on_cuda:
        return _largest(rows, on_cuda, target=target)
    counted = [row for row in byte_rows(rows) if not row.data.get("twin")]
    if not counted:
        return missing("no real graph of the paper's was counted in this run")
    titles = ", ".join(BY_NAME[row.params["dataset"]].title for row in counted)
    found = {}
    for name, format_ in (("plain where that is less", "sent"), ("always a difference", "forced")):
        value = max(gain_of_bytes(row, "cd_gcn", format_=format_) for row in counted)
        found[name] = finding(
            counted, model=LINK, measured=value, direction=value > 1, target=target,
            reason=f"raw snapshots of {titles}",
        )  # fmt: skip
    return Finding(readings=found)


def order_by_smoothing(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Each graph's gain with smoothed snapshots against that with raw ones."""
    timed = _on_cuda(rows, timed_gains(rows, "transfer"))
    graphs = {name for name, _ in timed}
    sides = [
        timed[name, model].against(timed[name, raw])
        for name in graphs
        for model in SMOOTHED
        for raw in RAW
        if (name, model) in timed and (name, raw) in timed
    ]
    if sides:
        used = [row for row in timed_rows(rows) if row.params["dataset"] in graphs]
        return finding(
            used,
            measured=f"{sides.count(1)} of {some(len(sides), 'pair')} larger",
            holds=min(sides) > 0, undecided=min(sides) == 0,
            processes=min(ratio.processes for ratio in timed.values()),
        )  # fmt: skip
    counted = _real_first(byte_rows(rows))
    if not counted:
        return missing(NO_BYTES)
    ordered = all(
        min(gain_of_bytes(row, model) for model in SMOOTHED)
        > max(gain_of_bytes(row, model) for model in RAW)
        for row in counted
    )
    shown = {
        MODEL_TITLES[model]: _span(gain_of_bytes(row, model) for row in counted) for model in MODELS
    }
    return finding(
        counted, model=LINK, measured=shown, holds=ordered,
        reason=f"bytes of the matrices of {some(len(counted), 'graph')}, one rank",
    )  # fmt: skip


def components(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Transfer against the rest with and without differences; the paper prints no number."""
    used = timed_rows(rows)
    if not used:
        return missing(NO_TIMES)
    shares = {name: median(transfer_share(row, name) for row in used) for name in (BASE, GD)}
    return finding(
        used,
        measured={f"transfer share, {name}": f"{share:.0%}" for name, share in shares.items()},
        reason="medians over models and graphs on one rank",
    )


def transfer_matters(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Share of Base's epoch that is transfer, for each model and graph."""
    used = timed_rows(rows)
    if not used:
        return missing(NO_TIMES)
    each: dict[tuple[str, str], list[float]] = {}
    for row in used:
        key = row.params["dataset"], row.params["model"]
        each.setdefault(key, []).append(transfer_share(row, BASE))
    shares = [median(found) for found in each.values()]
    enough = sum(share >= SIGNIFICANT for share in shares)
    return finding(
        used,
        measured=f"{_span((100 * s for s in shares), 'of an epoch', '%')}",
        holds=enough == len(shares),
        reason=f"at least {SIGNIFICANT:.0%} (our threshold) on {enough} of {len(shares)} pairs of "
        "model and graph",
    )


def smoothings_alike(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Entries of an edge life and of a window of the same length."""
    found = _real_first(_smoothed(rows))
    if not found:
        return missing("no smoothed snapshots were made in this run")
    same = all(number(r, "snapshots", of="equal") == number(r, "snapshots", of="made")
               for r in found)  # fmt: skip
    gap = max(number(row, "relative_error", of="normalised") for row in found)
    return finding(
        found,
        measured="the same entries" if same else "other entries",
        holds=same,
        reason=f"so nnz and overlap are equal at equal lengths, on {some(len(found), 'graph')}; "
        f"normalised values differ by up to {gap:.0%}, as sums weigh an edge more against the "
        "loop than means",
    )


def _on_cuda(rows: Sequence[Any], gains: dict[Any, Ratio]) -> dict[Any, Ratio]:
    """Those that rest on rows of a GPU only."""
    devices = {row.id: row.device for row in timed_rows(rows)}
    return {k: r for k, r in gains.items() if all(devices[i] == "cuda" for i in r.rows)}


def _real_first(rows: Sequence[Any]) -> list[Any]:
    """Rows of real data, or all where there are none."""
    return [row for row in rows if not row.data.get("twin")] or list(rows)


def _where(name: str, model: str) -> str:
    return f"{MODEL_TITLES[model]} on {BY_NAME[name].title}"


def _percent(ratio: float) -> float:
    return 100 * (1 - 1 / ratio)


def _span(values: Iterable[float], unit: str = "", sign: str = "x") -> str:
    found = sorted(values)
    ends = dict.fromkeys(f"{value:.2g}" for value in (found[0], found[-1]))
    return f"{' to '.join(ends)}{'' if sign == 'x' else ' '}{sign} {unit}".strip()
