"""Claims on strong and weak scaling (1, 6.3, 6.5) and on the epoch times of Table 2.

Most rest on projections. A projection has two readings of how fast the paper's GPU is (see
`experiments.projection`), and a claim is judged under each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from dgbench.lab.compare import ratio_of
from dgbench.lab.evidence import finding, missing
from dgbench.lab.printed import as_printed
from dgbench.lab.table import Table, number, rows_of
from dgbench.systems.base import Claim, Finding
from dgbench.systems.esdg.experiments import fig5_curves, fig7
from dgbench.systems.esdg.experiments.projection import (
    GPUS_PER_NODE,
    TABLE2_STEPS,
    ProjectedSnapshotEpoch,
    exchange_excess,
    snapshot_epoch,
    speedups,
    v100_cluster,
    vertex_epoch,
    with_excess,
)
from dgbench.systems.esdg.experiments.settings import BY_NAME, MODEL_TITLES, RANKS
from dgbench.systems.esdg.experiments.table2 import remote_per_vertex_step, standing_for_paper

Line = dict[int, ProjectedSnapshotEpoch]
Verdict = Callable[[Line], bool]

NONE5 = "no share of a rank was measured: the experiment 'fig5' did not run"
NONE7 = "no share of a rank was measured: the experiment 'fig7' did not run"
MOVING = ("tm_gcn", "cd_gcn")
"""Models whose activations travel."""

MODEL_OF = {
    "esdg-s63-weak-tmgcn": "tm_gcn",
    "esdg-s63-weak-cdgcn": "cd_gcn",
    "esdg-s63-weak-evolvegcn": "evolvegcn_o",
    "esdg-tab2-time-tmgcn": "tm_gcn",
    "esdg-tab2-time-cdgcn": "cd_gcn",
    "esdg-tab2-time-egcn": "evolvegcn_o",
    "esdg-tab2-hyper-time-tmgcn": "tm_gcn",
    "esdg-tab2-hyper-time-cdgcn": "cd_gcn",
    "esdg-tab2-hyper-time-egcn": "evolvegcn_o",
}
WEAK = tuple(key for key in MODEL_OF if "weak" in key)
SNAPSHOT_TIMES = tuple(key for key in MODEL_OF if "tab2-time" in key)
HYPER_TIMES = tuple(key for key in MODEL_OF if "hyper-time" in key)

WELL = 0.75
"""Computing is `near-linear` where a rank's share gains this much of what perfect shares would: the
tolerance of all factors."""
WITHIN = 0.25
"""Relative tolerance of a projected time or factor."""
TITLES = {"bandwidth": "by memory bandwidth", "printed": "by Table 2's seconds"}
"""Assumption on the speed of the paper's GPU, in words."""

MEASURED = 16
"""Ranks up to which shares are measured."""

TABLE2_RANKS = (4, 16, 64)
GROWTH = 1.02
"""Smaller factors between two points of a projected curve count as none."""


# Strong scaling.


def strong(claim: Claim, rows: Sequence[Any]) -> Finding:
    """The best projected speed-up at 128 ranks, in the paper's convention; see `_near`."""
    found = fig5_curves.curves(rows)
    if not found:
        return missing(NONE5)
    used = list(fig5_curves.share_rows(rows).values())
    each = {}
    for reading, lines in found.items():
        value, name = max((speedups(line)[max(line)], _name(*k)) for k, line in lines.items())
        said = f"{name}, the best of {len(lines)}"
        each[reading] = _near(used, value, float(claim.value["high"]), reason=said)
    return _readings(each, _errors(rows) + _left_out(found))


def _near(used: Sequence[Any], value: float, printed: float, **fields: Any) -> Finding:
    """A projected factor over one rank against the printed one, by its value alone: whatever was
    measured, more ranks are projected to gain."""
    holds = abs(value / printed - 1) <= WITHIN
    return _projection(used, value, target=printed, holds=holds, **fields)


def _left_out(found: fig5_curves.Curves) -> str:
    """Describe the costs left out of the projection, and its result with exchanges as slow as
    printed."""
    ends: dict[str, list[float]] = {}
    for lines in found.values():
        for key, line in lines.items():
            if key[1] in MOVING:
                ends.setdefault(_name(*key), []).append(speedups(with_excess(line))[max(line)])
    said = [f"{name} {_between(values)}" for name, values in ends.items()]
    slower = (
        f"; with exchanges {exchange_excess():.1f} times slower, which Table 2 implies, "
        + ", ".join(said)
        if said
        else ""
    )
    return (
        "left out are what launches cost on a GPU, rebuilding matrices there and waiting for "
        f"slower ranks; links run at peak rates{slower}"
    )


def comm_bottleneck(claim: Claim, rows: Sequence[Any]) -> Finding:
    """The share of communication grows from one node to 16 and is the largest part there."""

    def limits(line: Line) -> bool:
        last = line[max(line)]
        largest = last.communicate_s > max(last.compute_s, last.transfer_s)
        return largest and last.share > line[_node(line)].share

    return _lines(
        rows, limits, lambda line: f"{line[_node(line)].share:.0%} of an epoch at {_node(line)} "
        f"ranks, {line[max(line)].share:.0%} at {max(line)}"
    )  # fmt: skip


def boundary_drop(claim: Claim, rows: Sequence[Any]) -> Finding:
    """speedup(16) < speedup(8), as printed."""
    return _lines(rows, lambda line: _gain(line, 8, 16) < 1, _from_to(8, 16))


def recovers(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Every doubling beyond two nodes gains, and on average more than the one to two nodes."""

    def better(line: Line) -> bool:
        later = [_gain(line, p, 2 * p) for p in (16, 32, 64)]
        mean = (later[0] * later[1] * later[2]) ** (1 / 3)
        return all(g > GROWTH for g in later) and mean > _gain(line, 8, 16)

    return _lines(rows, better, _from_to(8, 16, 32, 64, 128))


def sublinear(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Sixteen nodes gain less than sixteen times one, on every line."""
    return _lines(
        rows, lambda line: _gain(line, 8, 128) < 16,
        lambda line: f"{_gain(line, 8, 128):.1f}x from 1 to 16 nodes", models=tuple(MODEL_TITLES),
    )  # fmt: skip


def compute_scales(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Check the gain of one rank's share over the whole, at up to 16 ranks."""
    found = rows_of(rows, experiment=fig5_curves.NAME, part="shares")
    if not found:
        return missing(NONE5)
    said, below, open_, processes = {}, [], [], []
    for (dataset, model), gains in Table.of(found).where("speedup").by("dataset", "model").items():
        size = max(one["ranks"] for one in gains if one["ranks"] <= MEASURED)
        ratio = ratio_of(gains.where(ranks=size))
        assert ratio is not None
        name = _name(dataset, model)
        ideal = number(gains[-1].row, "estimate", of="speedup", ranks=size)
        low, high = (ratio.value if end is None else end for end in (ratio.low, ratio.high))
        said[name] = f"{ratio.value:.1f}x at {size} ranks, {ideal:.1f}x would be perfect"
        processes.append(ratio.processes)
        if high < WELL * ideal:
            below.append(name)
        elif low < WELL * ideal:
            open_.append(name)
    large = fig5_curves.curves(rows).get("bandwidth", {})
    ends = [
        f"{_name(*k)} {e[min(e)].compute_s / e[max(e)].compute_s:.0f}x" for k, e in large.items()
    ]
    return finding(
        found,
        proxy="shares of a rank are computed one at a time, of up to 16 ranks",
        measured=said,
        holds=not below,
        undecided=bool(open_) and not below,
        processes=min(processes),
        reason=f"near-linear is {WELL:.0%} of perfect; projected at full size and {max(RANKS)} "
        "ranks: " + ", ".join(ends),
    )


def inter_node(claim: Claim, rows: Sequence[Any]) -> Finding:
    """1/K of what is redistributed stays inside nodes, what a rank keeps counted in; exact."""
    row = _counted(rows)
    if row is None:
        return missing("nothing was counted: the experiment 'fig5' did not run")
    said, exact = {}, True
    for size, floats in sorted(Table.of([row]).where("floats").by("ranks").items()):
        inside, between, kept = map(floats.numbers("of").__getitem__, ("inside", "between", "kept"))
        nodes = size // GPUS_PER_NODE
        whole = inside + between + kept
        exact &= (inside + kept) * nodes == whole and between * nodes == whole * (nodes - 1)
        said[f"{nodes} nodes"] = f"{(inside + kept) / whole:.4g} inside"
    return finding([row], measured=said, holds=exact)


def idle(claim: Claim, rows: Sequence[Any]) -> Finding:
    """P - T ranks have no snapshot where T < P, none otherwise; exact."""
    row = _counted(rows)
    if row is None:
        return missing("nothing was counted: the experiment 'fig5' did not run")
    steps = number(row, "snapshots")
    idle_ranks = Table.of([row]).where("processes", of="idle").numbers("ranks")
    found = dict(sorted(idle_ranks.items()))
    fewer = [p for p in found if p > steps]
    holds = bool(fewer) and all(n == max(0, p - steps) for p, n in found.items())
    return finding(
        [row],
        measured={f"{p} ranks": n for p, n in found.items()},
        holds=holds,
        reason=f"ranks without one of {steps} snapshots; they still work on their vertices. That a "
        "snapshot may be too large follows from its bytes and was not tried",
    )


def max_system(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Nothing here has 128 GPUs; projections use a model of the machine."""
    size = claim.value
    return missing(
        f"needs {size['gpus']} GPUs; here only the model that projections use has "
        f"{size['nodes']} nodes of {size['gpus_per_node']}"
    )


# Weak scaling.


def weak(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Projected throughput at 128 GPUs over that at one: more than linear, or see `_near`."""
    model = MODEL_OF[claim.id]
    found = {k: fig7.gains(v[model]) for k, v in fig7.curves(rows).items() if model in v}
    if not found:
        return missing(NONE7)
    printed = float(claim.value)
    superlinear = printed > fig7.WIDEST
    used = [fig7.share_rows(rows)[model]]
    each = {}
    for reading, line in found.items():
        value = line[fig7.WIDEST]
        each[reading] = (
            _projection(used, value, direction=value > fig7.WIDEST, target=printed)
            if superlinear
            else _near(used, value, printed)
        )
    return _readings(each, _errors(rows) + (_launches(rows) if superlinear else ""))


def _launches(rows: Sequence[Any]) -> str:
    found = Table.of(rows, experiment=fig7.NAME, part="launch").where("speedup")
    if not found:
        return ""
    many, few = (number(found[-1].row, "snapshots", setting=name) for name in ("many", "few"))
    return (
        f"measured here, {many} small snapshots take {found[-1].value:.2f}x "
        f"as long as {few} large ones with as many edges"
    )


def weak_drop(claim: Claim, rows: Sequence[Any]) -> Finding:
    """From 8 to 16 ranks throughput gains less, by 2 %, than by the doublings around it."""
    found = fig7.curves(rows)
    if not found:
        return missing(NONE7)

    def dent(line: Line) -> bool:
        gains = fig7.gains(line)
        ratio = {p: gains[2 * p] / gains[p] for p in (4, 8, 16)}
        return GROWTH * ratio[8] < min(ratio[4], ratio[16])

    def words(line: Line) -> str:
        gains = fig7.gains(line)
        return " -> ".join(f"{gains[p]:.1f}" for p in (4, 8, 16, 32)) + "x at 4, 8, 16, 32"

    lines = {
        reading: {("", m): line for m, line in by_model.items() if m in MOVING}
        for reading, by_model in found.items()
    }
    used = [row for m, row in fig7.share_rows(rows).items() if m in MOVING]
    return _judge(lines, used, rows, dent, words, NONE7)


def weak_sizes(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Edges of all snapshots: N T (f + 1) at both ends, with what a window would add."""
    row = _sizes(rows)
    if row is None:
        return missing("no random graph was drawn: the experiment 'fig7' did not run")
    low, high = (number(row, "edges", of=of) for of in ("first", "last"))
    # 16.8 M is printed as 16M: cut, not rounded (or counted in units of 2^20).
    holds = low // 10**6 == int(str(claim.value["low"]).rstrip("M")) and as_printed(
        high, claim.value["high"]
    )
    return finding(
        [row],
        measured={"low": low, "high": high},
        holds=holds,
        reason=f"N T (3 + 1) with N = 2^14 and 2^21, the first printed without its decimals; drawn "
        f"were {number(row, 'edges', of='first_stored')} different ones. A window of 2 would make "
        f"{number(row, 'edges', of='first', life=2)}",
    )


def weak_nodes(claim: Claim, rows: Sequence[Any]) -> Finding:
    """2^14 doubled as often as the GPUs are is 2^21, not a million."""
    row = _sizes(rows)
    if row is None:
        return missing("no random graph was drawn: the experiment 'fig7' did not run")
    first, last = (number(row, "vertices", of=of) for of in ("first", "last"))
    base, power = map(int, str(claim.value["start"]).split("^"))
    return finding(
        [row],
        measured={"start": first, "end": last},
        holds=first == base**power and as_printed(last, claim.value["end"]),
        reason=f"{number(row, 'processes', of='doublings')} doublings; the printed edges need as "
        "many vertices, too",
    )


# Epoch times of Table 2.


def snapshot_times(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Projected epochs of the snapshot partition at the printed ranks."""
    return _times(claim, rows, lambda job, p, machine: snapshot_epoch(job, p, machine))


def hyper_times(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Projected epochs of the vertex partition, from the remote reads that a partitioner left."""
    model = MODEL_OF[claim.id]
    remote = {p: remote_per_vertex_step(rows, model, p) for p in TABLE2_RANKS}
    if any(value is None for value in remote.values()):
        return missing("no vertices were parted: the experiment 'table2' did not run")
    return _times(
        claim, rows, lambda job, p, machine: vertex_epoch(job, p, machine, remote[p]),
        extra="a message per pair of ranks, step and pass, time to pack rows left out",
        also=[standing_for_paper(rows, model)],
    )  # fmt: skip


def _times(
    claim: Claim,
    rows: Sequence[Any],
    epoch: Callable[..., ProjectedSnapshotEpoch],
    extra: str = "",
    also: Sequence[Any] = (),
) -> Finding:
    """Seconds at the printed ranks; `also` are rows that they rest on beside the share's.

    They hold where all are met within a quarter; a table of times has no direction.
    """
    row = fig5_curves.share_rows(rows).get(("amlsim", MODEL_OF[claim.id]))
    if row is None:
        return missing(NONE5)
    job = fig5_curves.job_of(row, steps=TABLE2_STEPS)
    wanted = {int(p): float(v) for p, v in claim.value.items() if isinstance(v, int | float)}
    each = {}
    for reading, by_model in fig5_curves.speeds(rows).items():
        if job.model in by_model:
            times = {
                p: 1e3 * epoch(job, p, v100_cluster(p, by_model[job.model])).seconds for p in wanted
            }
            each[reading] = _projection(
                [row, *filter(None, also)],
                {str(p): round(value) for p, value in times.items()},
                holds=all(abs(times[p] / wanted[p] - 1) <= WITHIN for p in wanted),
            )
    return _readings(each, _errors(rows) + extra)


# What they share.


def _lines(
    rows: Sequence[Any],
    holds: Verdict,
    words: Callable[[Line], str],
    models: Iterable[str] = MOVING,
) -> Finding:
    """Judge the projected strong-scaling curves of these models."""
    models = tuple(models)
    lines = {
        reading: {key: line for key, line in found.items() if key[1] in models}
        for reading, found in fig5_curves.curves(rows).items()
    }
    used = [row for key, row in fig5_curves.share_rows(rows).items() if key[1] in models]
    return _judge(lines, used, rows, holds, words, NONE5)


def _judge(
    lines: Mapping[str, Mapping[tuple[str, str], Line]],
    used: Sequence[Any],
    rows: Sequence[Any],
    holds: Verdict,
    words: Callable[[Line], str],
    lacking: str,
) -> Finding:
    """A statement on curves, which by each reading has to hold on all of them."""
    each = {
        reading: _projection(
            used,
            {_name(*key): words(line) for key, line in many.items()},
            holds=all(holds(line) for line in many.values()),
        )
        for reading, many in lines.items()
        if many
    }
    return _readings(each, _errors(rows)) if each else missing(lacking)


def _projection(used: Sequence[Any], measured: Any, **fields: Any) -> Finding:
    return finding(used, model="alpha-beta model", measured=measured, **fields)


def _readings(each: Mapping[str, Finding], reason: str) -> Finding:
    return Finding(readings={TITLES[name]: one for name, one in each.items()}, reason=reason)


def _errors(rows: Sequence[Any]) -> str:
    """Error of the model of links on this machine's, in words."""
    error, typical = fig5_curves.link_errors(rows)
    if error is None or typical is None:
        return ""
    return f"all-to-alls here are {typical:.0%} off such a model (median, at most {error:.0%}); "


def _between(values: Sequence[float]) -> str:
    ends = dict.fromkeys(f"{pick(values):.0f}x" for pick in (min, max))
    return " to ".join(ends)


def _name(dataset: str, model: str) -> str:
    title = MODEL_TITLES[model]
    return f"{title} on {BY_NAME[dataset].title}" if dataset else title


def _node(line: Line) -> int:
    """The most ranks of one node that the line has."""
    return max((p for p in line if p <= GPUS_PER_NODE), default=min(line))


def _gain(line: Line, first: int, last: int) -> float:
    return line[first].seconds / line[last].seconds


def _from_to(*sizes: int) -> Callable[[Line], str]:
    def words(line: Line) -> str:
        ratio = speedups(line)
        values = " -> ".join(f"{ratio[p]:.1f}" for p in sizes)
        return f"{values}x at {', '.join(map(str, sizes))}"

    return words


def _counted(rows: Sequence[Any]) -> Any | None:
    found = rows_of(rows, experiment=fig5_curves.NAME, part="counted")
    return found[-1] if found else None


def _sizes(rows: Sequence[Any]) -> Any | None:
    found = rows_of(rows, experiment=fig7.NAME, part="sizes")
    return found[-1] if found else None
