"""Findings on training: Figure 6, Tables 2 and 3, and the ablation."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from dgbench.lab.compare import Ratio, ratio_of
from dgbench.lab.evidence import from_ratio
from dgbench.lab.paper import Check, Claim, Finding
from dgbench.lab.probes import probe
from dgbench.lab.table import Table, number
from dgbench.lab.verbs import Judge, last, rows_with, says
from dgbench.systems.tgcn.common import last_rows
from dgbench.systems.tgcn.experiments import ablation, fig6, large, table2, table3
from dgbench.systems.tgcn.findings.common import DID_NOT_RUN, NEEDS_CUDA, Fields, Rows
from dgbench.systems.tgcn.printed import PRINTED_TITLE
from dgbench.systems.tgcn.races import DYGNN, JODIE, RELAXED, TGCN, TITLES, WHOLE
from dgbench.systems.tgcn.settings import BY_NAME, GPU_BYTES, PAPERS_GRAPHS, graph_title

# End-to-end training: Figure 6, section 6.2.

NO_FIG6: Final = "needs a row of fig6"
RACES = rows_with(fig6.NAME, NO_FIG6, PAPERS_GRAPHS.of, what="race")
GPU_RACES = rows_with(fig6.NAME, NEEDS_CUDA, PAPERS_GRAPHS.of, what="race", device="cuda")
PADDED = rows_with(fig6.NAME, NO_FIG6, what="padding")
GPU_RATE = rows_with(fig6.NAME, NEEDS_CUDA, what="rate", device="cuda")
RESIDENT = probe("gpu_kernel_resident_percent")
"""Probe of NVML's utilisation."""
BUSY: Final = 90
"""Percent of the time from which a GPU is fully used."""


def thousands(printed: str) -> float:
    """A number that is printed in thousands, as `34K`."""
    return 1000 * float(printed.rstrip("K"))


def controls(rows: Rows) -> str:
    """Describe the separate gains of relaxed order and of fewer edges."""
    words = []
    for other in (RELAXED, WHOLE):
        values = Table.of(rows).where("speedup", baseline=other).values
        words.append(f"over {TITLES[other]} {min(values):.2f}x to {max(values):.2f}x")
    return "controls: " + ", ".join(words)


def faster_than(other: str) -> Judge:
    """Geometric mean of the gains over a contender on the paper's graphs."""

    def judge(claim: Claim, rows: Rows) -> Finding:
        gains = Table.of(rows).where("speedup", baseline=other)
        each = ", ".join(f"{graph_title(one['dataset'])} {one.value:.1f}x" for one in gains)
        said = f"{each}; {controls(rows)}"
        return from_ratio(ratio_of(gains), target=float(claim.value["mean"]), reason=said)

    return judge


def beats_both(claim: Claim, rows: Rows) -> Fields:
    """T-GCN is faster than both on every graph, by intervals."""
    gains = {other: [fig6.gain([row], other) for row in rows] for other in (DYGNN, JODIE)}
    sides = [one.side for each in gains.values() for one in each]
    slowest = min(one.value for each in gains.values() for one in each)
    faster = sum(j.value > d.value for d, j in zip(*gains.values(), strict=True))
    return {
        "measured": slowest,
        "holds": min(sides) > 0 and faster == len(rows),
        "direction": min(sides) > 0,
        "undecided": 0 in sides,
        "reason": f"at least {slowest:.1f}x over either; DyGNN is the faster baseline on {faster} "
        f"of {len(rows)} graphs; {controls(rows)}",
    }


def largest_gain(claim: Claim, rows: Rows) -> Finding:
    """The largest gain over either baseline."""
    ratio, other, row = max(
        ((fig6.gain([row], other), other, row) for row in rows for other in (DYGNN, JODIE)),
        key=lambda one: one[0].value,
    )
    said = f"over {TITLES[other]} on {graph_title(row.params['dataset'])}; {controls(rows)}"
    return from_ratio(ratio, target=claim.value, reason=said)


def underused(claim: Claim, rows: Rows) -> Fields | None:
    """The GPU is not saturated by the small graphs."""
    known = [busy for row in rows if (busy := RESIDENT.read(row)) is not None]
    if not known:
        return None
    return {
        "measured": max(known),
        "holds": max(known) < BUSY,
        "reason": "mean utilisation of a process that trains all contenders, in percent",
    }


def twitter_time(claim: Claim, rows: Rows) -> Fields:
    """Time on Twitter, from the rate on a twin of a part of it."""
    row = rows[-1]
    return {
        "measured": BY_NAME[fig6.LARGE].printed.edges * number(row, "edge_time", setting=TGCN),
        "target": claim.value,
        "reason": f"an epoch at the rate of {number(row, 'edges', of=None):,} edges of a twin; the "
        "paper does not say how many epochs it trained",
    }


def rates_of(rows: Rows, name: str) -> dict[str, float]:
    """Edges a second of a contender, by graph."""
    by_graph = Table.of(rows).where("throughput", setting=name).numbers("dataset")
    return {PRINTED_TITLE.get(graph, graph): rate for graph, rate in by_graph.items()}


def throughput(name: str, of_all: Callable[[Iterable[float]], float]) -> Judge:
    """Edges a second of a contender over the paper's graphs."""

    def judge(claim: Claim, rows: Rows) -> Fields:
        rates = rates_of(rows, name)
        each = ", ".join(f"{key} {rate:,.0f}" for key, rate in rates.items())
        return {
            "measured": of_all(rates.values()),
            "target": thousands(claim.value),
            "reason": f"edges/s of the whole graph: {each}",
        }

    return judge


def throughput_floor(claim: Claim, rows: Rows) -> Fields:
    """Baselines train fewer edges a second than T-GCN."""
    lowest = min(min(rates_of(rows, name).values()) for name in (DYGNN, JODIE))
    highest = max(rates_of(rows, TGCN).values())
    printed = thousands(claim.value["T-GCN"]) / thousands(claim.value["prior"])
    return {
        "measured": {"prior": lowest, "T-GCN": highest},
        "direction": lowest < highest,
        "reason": f"{highest / lowest:.0f}x apart, the paper's numbers {printed:.0f}x",
    }


def padding(claim: Claim, rows: Rows) -> Fields:
    """Padding makes DyGNN slower and larger."""
    ratio, row = fig6.gain(rows, DYGNN), rows[-1]
    share, larger = (
        number(row, metric, setting=DYGNN) / number(row, metric, setting=fig6.PLAIN)
        for metric in ("relative_size", "memory")
    )
    return {
        "measured": ratio.value,
        "direction": ratio.side > 0,
        "undecided": ratio.side == 0 and ratio.low is not None,
        "reason": f"padded t-batches hold {share:.1f} times the edges, take {ratio.value:.2f} "
        f"times as long and {larger:.3f} times the memory on {row.data['dataset']}; none ran out "
        "of it",
    }


# Copies, computation and their overlap: Table 2, section 4.3.

NO_TABLE2: Final = "needs a row of table2"
TIMES = rows_with(table2.NAME, NO_TABLE2, PAPERS_GRAPHS.of)
ALL_TIMES = rows_with(table2.NAME, NO_TABLE2)
RISE: Final = 1.02
"""From here on the sum of parts is above the whole by more than clocks are off."""


def gpu_seconds(system: str, part: str) -> Check:
    """Seconds of an epoch on a GPU, by graph."""

    def with_it(rows: list[Any]) -> list[Any]:
        return [row for row in PAPERS_GRAPHS.of(rows) if table2.parts_of(row, system)]

    def judge(claim: Claim, rows: Rows) -> Fields:
        return {
            "measured": {
                PRINTED_TITLE[row.params["dataset"]]: table2.parts_of(row, system)[part]
                for row in rows
            },
            "reason": "seconds of one epoch; the paper does not say of how many its are",
        }

    return says(rows_with(table2.NAME, NEEDS_CUDA, with_it, device="cuda"), judge)


def compute_share(claim: Claim, rows: Rows) -> Fields:
    """Computation as a share of the time, of both systems."""
    shares = {
        f"{graph_title(row.params['dataset'])} {name}": 100 * table2.share(row, key)
        for row in rows
        for key, name in ((TGCN, "T-GCN"), (DYGNN, "DyGNN"))
        if table2.parts_of(row, key)
    }
    each = ", ".join(f"{key} {value:.0f} %" for key, value in shares.items())
    return {
        "measured": sum(shares.values()) / len(shares),
        "direction": min(shares.values()) > 50,
        "reason": f"computation takes {each}",
    }


def overlap(claim: Claim, rows: Rows) -> Fields:
    """The parts of T-GCN's epoch add up to more than the epoch."""
    words, ratios = [], {}
    for row in rows:
        for key in (TGCN, table2.STREAMED):
            # What is neither copy nor computation (sampling, cutting, Python) is in no part.
            parts = table2.parts_of(row, key)
            ratio = (parts["compute"] + parts["io"]) / (parts["compute"] + parts["wait"])
            ratios[row.id, key] = ratio
            words.append(f"{graph_title(row.params['dataset'])} {key} {ratio:.2f}x")
    smallest = min(ratio for (_, key), ratio in ratios.items() if key == table2.STREAMED)
    level = abs(smallest - 1) <= RISE - 1
    return {
        "measured": smallest,
        "direction": None if level else smallest > 1,
        "undecided": level,
        "reason": "copies and computation over computation and what is waited for: "
        + ", ".join(words),
    }


def both_reduced(claim: Claim, rows: Rows) -> Fields | None:
    """T-GCN copies and computes less than DyGNN."""
    found = [row for row in rows if table2.parts_of(row, DYGNN)]
    if not found:
        return None
    words, holds = [], []
    for row in found:
        for part in ("io", "compute"):
            ours, theirs = (table2.parts_of(row, key)[part] for key in (TGCN, DYGNN))
            holds.append(ours < theirs)
            title = graph_title(row.params["dataset"])
            words.append(f"{title} {part} {theirs / ours:.1f}x" if ours else f"{part} none")
    return {
        "rows": found,
        "measured": f"{sum(holds)} of {len(holds)} parts are smaller",
        "holds": all(holds),
        "direction": all(holds),
        "reason": "DyGNN over T-GCN: " + ", ".join(words),
    }


def pingpong(claim: Claim, rows: Rows) -> Fields:
    """Copies run beside training with three regions and not with one."""
    timelines = Table.of(rows).where("part_time", of=table2.TIMELINE)
    if timelines:
        spent = [
            Table.of([row]).where("part_time", of=table2.TIMELINE).numbers("phase")
            for row in timelines.rows
        ]
        both = [one["both"] / max(1e-12, one["copy"]) for one in spent]
        return {
            "rows": timelines.rows,
            "measured": f"{min(both):.0%} to {max(both):.0%} of copy time beside training",
            "holds": min(both) > 0.05,
            "reason": "by events of the device, state streamed from host memory",
        }
    keys = (TGCN, table2.SERIAL, table2.STREAMED, table2.STREAMED_SERIAL)
    each = {key: [table2.hidden_share(row, key) for row in rows] for key in keys}
    hidden = {key: sum(shares) / len(rows) for key, shares in each.items()}
    streamed, serial = each[table2.STREAMED], each[table2.STREAMED_SERIAL]
    better = all(three > one for three, one in zip(streamed, serial, strict=True))
    return {
        "measured": hidden[table2.STREAMED],
        "holds": better,
        "direction": better,
        "reason": f"of streamed state's copies {hidden[table2.STREAMED]:.0%} are hidden with three "
        f"regions and {hidden[table2.STREAMED_SERIAL]:.0%} with one; of resident state's "
        f"{hidden[TGCN]:.0%} and {hidden[table2.SERIAL]:.0%}; a copy thread stands in for the "
        "device's engine",
    }


# Device memory: Table 3, section 6.6, and what fits into a GPU.


def on_all_systems(rows: list[Any]) -> list[Any]:
    """Rows on graphs of the paper that all three systems ran on."""
    return [row for of in table3.by_graph(PAPERS_GRAPHS.of(rows)).values() for row in of.values()]


MEMORY = rows_with(table3.NAME, "needs rows of table3 of all three systems", on_all_systems)
PLANNED = rows_with(
    large.NAME, DID_NOT_RUN.format(large.NAME), last, kind=large.PLAN, dataset="twitter"
)


def gpu_memory(system: str) -> Check:
    """MB of device memory by graph."""
    found = rows_with(table3.NAME, NEEDS_CUDA, PAPERS_GRAPHS.of, system=system, device="cuda")

    def judge(claim: Claim, rows: Rows) -> Fields:
        held = {
            row.params["dataset"]: Table.of([row]).where("memory", of=None).numbers("method")
            for row in rows
        }
        driver = ", ".join(
            f"{graph_title(name)} {of['driver'] / table3.MB:,.0f} MB" for name, of in held.items()
        )
        return {
            "measured": {PRINTED_TITLE[n]: of["held"] / table3.MB for n, of in held.items()},
            "reason": f"the allocator's peak; the driver says {driver}",
        }

    return says(found, judge)


def savings(rows: Rows) -> tuple[list[float], str]:
    """Memory of each baseline over T-GCN's on each graph, and the same in words."""
    ratios: list[float] = []
    words = []
    for name, of in table3.by_graph(rows).items():
        less = table3.savings(of)
        ratios += less.values()
        each = ", ".join(f"{TITLES[key]} {value:.2f}x" for key, value in less.items())
        words.append(f"{graph_title(name)}: {each}")
        if table3.STREAMED in of:
            streamed = table3.memory(of[TGCN]) / table3.memory(of[table3.STREAMED])
            words[-1] += f" (state streamed: T-GCN {streamed:.2f}x less)"
    return ratios, "; ".join(words)


def least_memory(claim: Claim, rows: Rows) -> Fields:
    """T-GCN holds the least on every graph."""
    ratios, words = savings(rows)
    least = min(ratios)
    return {"measured": least, "holds": least > 1, "direction": least > 1, "reason": words}


def largest_saving(claim: Claim, rows: Rows) -> Fields:
    """The largest factor between a baseline's memory and T-GCN's."""
    ratios, words = savings(rows)
    most = max(ratios)
    return {"measured": most, "direction": most > 1, "target": claim.value, "reason": words}


def planned_bytes(row: Any) -> dict[str, Any]:
    """Planned bytes on one device by contender."""
    return Table.of([row]).where("memory", of="device", ranks=None).numbers("setting")


def twitter_oom(claim: Claim, rows: Rows) -> Finding:
    """Check the memory of both baselines on their GPU against its 32 GiB."""
    small = [
        row.params["dataset"]
        for row in last_rows(rows, large.NAME, kind=large.PLAN)
        if all(planned_bytes(row)[one] <= GPU_BYTES for one in (DYGNN, JODIE))
    ]

    def judge(claim: Claim, found: Rows) -> Fields:
        held, state = (
            planned_bytes(found[0]),
            number(found[0], "memory", of="state", setting="paper"),
        )
        return {
            "measured": {TITLES[one]: f"{held[one] / 1e9:.0f} GB" for one in (DYGNN, JODIE)},
            "holds": state > GPU_BYTES,
            "reason": "by printed sizes, nothing was allocated: five vectors of every vertex alone "
            f"take {state / 1e9:.0f} GB of {GPU_BYTES / 1e9:.0f}; "
            f"{', '.join(small) or 'no graph'} would fit, padding aside",
        }

    return says(PLANNED, judge)(claim, rows)


def not_separable(claim: Claim, rows: Rows) -> Fields:
    """Check that one GPU cannot hold Twitter's vertices and edges without parts."""
    held = planned_bytes(rows[0])["tgcn"]
    return {
        "measured": f"{held / 1e9:.0f} GB of {GPU_BYTES / 1e9:.0f} GB",
        "holds": held > GPU_BYTES,
        "reason": f"with edges in the host already; in {number(rows[0], 'parts')} parts that "
        "stream it fits, which is what the one-GPU results on Twitter need, and the cut can be "
        "left out on smaller graphs (experiment 'ablation')",
    }


# One technique after the other: section 6.5.

LADDER = rows_with(ablation.NAME, "needs a row of ablation")
ENABLED: Final = ("sampling", "partition", "schedule")
"""Techniques that the paper says it enables one at a time."""


def every_step_gains(claim: Claim, rows: Rows) -> Fields:
    """Every technique of the paper's ladder gains."""

    def over_before(rows: Rows, step: str) -> Ratio:
        return ablation.gain(rows, step, ablation.BEFORE)

    sides = [over_before([row], step).side for row in rows for step in ENABLED]
    words = []
    for row in rows:
        steps = ", ".join(f"{s} {over_before([row], s).value:.2f}x" for s in ablation.STEPS[1:])
        words.append(f"{graph_title(row.params['dataset'])}: {steps}")
    lost, level = -1 in sides, 0 in sides
    return {
        "measured": {step: over_before(rows, step).value for step in ablation.STEPS[1:]},
        "direction": None if level and not lost else not lost,
        "undecided": level and not lost,
        "reason": "each over the step before; " + "; ".join(words),
    }
