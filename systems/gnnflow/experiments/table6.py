"""Table 6: lists and memory of five ways to size blocks (section 6.2)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import product
from typing import Any, ClassVar

import numpy as np
import torch

from dgbench import datasets
from dgbench.datasets import twins
from dgbench.kernels_cuda.temporal_store import BlockPolicy, TemporalStore
from dgbench.lab import outcomes, rules
from dgbench.lab import rule_combinations as combine
from dgbench.lab.estimates import EvaluationContext, prefer, real_data
from dgbench.lab.figure_forms import FigureForm, Sweep
from dgbench.lab.printed import ledger, plain
from dgbench.lab.quantities import MeasuredQuantity, observed
from dgbench.lab.result_checks import ResultCheck, close, equal
from dgbench.lab.study import FormExperiment
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.gnnflow.block_counts import BlockCounts
from dgbench.systems.gnnflow.experiments.sample_checks import by_subject
from dgbench.systems.gnnflow.experiments.settings import (
    BY_NAME,
    FORMS,
    LEDGER,
    PRESETS,
    StreamGraph,
    graph_title,
)

INJECTED = 100_000
"""Edges of a batch (section 6.2)."""
SCALES = {"gdelt": (1 / 2048, 1 / 128, 1 / 8, 1.0), "netflix": (1 / 1024, 1 / 64, 1 / 8, 1.0)}
"""Size of the twins by preset. Below these Netflix' threshold becomes that of the list of four."""
TWINS = tuple(SCALES)
HELD = {"smoke": ("wikipedia",)}
ALL_HELD = ("wikipedia", "sx-mathoverflow", "college-msg", "enron")
HELD_BATCH = 1000
"""Edges of a batch on the smaller graphs that are held."""
CONSTRUCTED = "constructed"
"""No dataset: a graph on which every vertex gets one record per batch, and the hubs of Table 6."""
MIB = float(1 << 20)
SLOT, BLOCK = 20, 64
"""Bytes of a slot and of a block that fit Table 6."""

COLUMNS = {
    "average": "avg-list", "longest": "max-list", "edge MB": "edge-mb", "metadata MB": "meta-mb"
}  # fmt: skip
"""Average and longest list, megabytes of edge data and of block records, by the ledger's names."""
PAPERS = ("Adj. List", "Strawman", "Fixed-size", "Adaptive", "Static")
WITHIN = 0.05
"""Relative distance up to which a number of Table 6 counts as the same."""
ORDERS = 1000.0
"""Several orders of magnitude: three at least."""
ABOUT_5 = (3.5, 6.5)
"""Range of percentages that count as `about 5 %`: the printed overheads lie between 4.6 and 6.0."""
IN_BYTES = ("edge MB", "metadata MB")
"""Columns of Table 6 that are counts times bytes."""
FORMULA = "sizes of the paper's records"
"""Model of findings in bytes: counted slots and blocks times 20 and 64 bytes, which fit Table 6."""
RULES = {"completed": "adaptive", "printed": "adaptive_literal"}
"""Readings of the rule of section 4.1, by their policies."""
NODE_ENTRY = 40
"""Bytes of the vertex table for a vertex (section 4.1): two links, two counts, a flag."""
LITERAL = "Adaptive as printed"
LIST_OF_ONE = "List of single edges"
LAYOUTS = (*PAPERS, LITERAL, LIST_OF_ONE)


def printed_table(graph: str) -> dict[str, dict[str, float]]:
    """A graph's rows of Table 6: layout -> column -> number."""
    columns = {name: ledger(LEDGER)[f"tab6-{graph}-{word}"] for name, word in COLUMNS.items()}
    return {
        layout: {
            name: int(plain(said[layout])) if isinstance(said[layout], str) else said[layout]
            for name, said in columns.items()
        }
        for layout in PAPERS
    }


def policies(tau: int, fixed: int) -> dict[str, BlockPolicy]:
    """The layouts of Table 6 and two more by our reading, by their names there."""
    return {
        "Adj. List": BlockPolicy("fixed", 4),
        "Strawman": BlockPolicy("strawman"),
        "Fixed-size": BlockPolicy("fixed", fixed),
        "Adaptive": BlockPolicy("adaptive", tau),
        "Static": BlockPolicy("static"),
        LITERAL: BlockPolicy("adaptive_literal", tau),
        LIST_OF_ONE: BlockPolicy("fixed", 1),
    }


def counted(metric: str, per: str | tuple[str, ...] = "dataset", **where: Any) -> MeasuredQuantity:
    """Counts of the graphs of Table 6 and of those that are held."""
    return observed(metric, per=per, experiment="table6", **where)


def column(name: str, setting: str | tuple[str, ...] = LAYOUTS, **where: Any) -> MeasuredQuantity:
    """A column of Table 6 by graph, for one layout or several."""
    if name == "longest":
        where |= {"statistic": "longest"}
    found = counted("slots" if name == "edge MB" else "list_blocks", setting=setting, **where)
    if name == "average":
        return found / counted("vertices", **where)
    return found * {"edge MB": SLOT / MIB, "metadata MB": BLOCK / MIB}.get(name, 1.0)


def above_static(*layouts: str) -> MeasuredQuantity:
    """Percent of edge data above one full block per vertex."""
    return 100 * (column("edge MB", layouts) / column("edge MB", "Static") - 1)


SHORTER = column("average", "Strawman") / column("average", "Adaptive")
"""Average list of the strawman over that of adaptive blocks."""
HUBS = counted("list_blocks", dataset=TWINS, setting="printed", statistic="longest")
"""Longest lists by the rule as printed, of hubs with the numbers of Table 6."""
PRINTED_HUBS = HUBS.printed(lambda at: printed_table(at["dataset"])["Adaptive"]["longest"])
WASTE = counted("portion", (), of="empty slots", baseline="edges")


def column_of_table(graph: str, of: str) -> outcomes.Rule:
    """A column for one graph: the order of layouts, at scale 1 the numbers.

    No two layouts stand the other way round, unless they are within 5 % of each other in either.
    """

    def rule(context: EvaluationContext) -> outcomes.RuleOutcome:
        numbers = column(of, PAPERS).where(dataset=graph).estimates(context)
        if not numbers:
            return outcomes.RuleOutcome(lacking=f"needs {graph_title(graph)} in table6")
        found = {dict(at)["setting"]: one.value for at, one in numbers.items()}
        printed = {name: one[of] for name, one in printed_table(graph).items()}
        turned = any(
            found[a] < found[b] * (1 - WITHIN) and printed[a] > printed[b] * (1 + WITHIN)
            for a, b in product(found, repeat=2)
        )
        outcome = replace(
            outcomes.outcome(context, numbers), direction=-1 if turned else 1,
            model=FORMULA if of in IN_BYTES else "",
        )  # fmt: skip
        if any(row.params["scale"] != 1 for row in outcome.rows):
            return outcome
        off = {name: value / printed[name] - 1 for name, value in found.items()}
        sides = tuple((name, 1 if abs(far) <= WITHIN else -1) for name, far in off.items())
        return replace(outcome, sides=sides)

    return rule


def drawn(
    name: str, title: str, y: MeasuredQuantity, printed: Callable[..., float], **options: Any
) -> FigureForm:
    """A figure of the layouts, a panel for each graph, with what `printed` forms of Table 6."""

    def at_full_size(at: Mapping[str, Any]) -> float | None:
        known = at["dataset"] in TWINS and at["setting"] in PAPERS and at["scale"] == 1
        return printed(printed_table(at["dataset"]), at["setting"]) if known else None

    y = y.per("scale").where(dataset=lambda graph: graph != CONSTRUCTED)
    return Sweep(
        name, title, {"blocks": y, "blocks, paper": y.printed(at_full_size)},
        panel="{dataset}, scale {scale}", series="of", x="{setting}",
        gaps={"series": "blocks", "x": "-"}, xlabel="", xlog=False, sort=False, names=False,
        **options,
    )  # fmt: skip


class Table6(FormExperiment):
    forms, name = FORMS, "table6"
    sources: ClassVar[Any] = {"portion": "counted"}
    device = "cpu"
    headline, unit = SHORTER, "x"
    figure_forms = (
        drawn("table6", "Blocks of a vertex, by how blocks are sized", column("average"),
              lambda table, name: table[name]["average"], ylabel="average list"),
        drawn("table6_memory", "Edge data above one full block per vertex, percent",
              above_static(*LAYOUTS),
              lambda table, name: 100 * (table[name]["edge MB"] / table["Static"]["edge MB"] - 1),
              ylabel="% above static", ylog=False),
    )  # fmt: skip
    claims = {
        # A new snapshot is needed where the time moves on: time stamps against edges.
        "gnnflow-s22-tegra-snapshots": rules.all_above(
            counted("events", of="time stamps") / counted("events"), 1 - WITHIN
        ),
        "gnnflow-s41-edge-block-size": rules.near_claim(
            counted("memory", (), of="block").keep(prefer(real_data))
        ),
        "gnnflow-s41-append-no-resort": rules.all_equal(
            counted("vertices", ("dataset", "of"), of=("merged", "out of order")), 0
        ),
        "gnnflow-s41-adaptive-size-rule": combine.shown_beside(
            rules.all_within(HUBS.over(PRINTED_HUBS), 1 - WITHIN, 1 + WITHIN, unit="x"),
            {"rule completed": HUBS.where(setting="completed")}, ""
        ),
        "gnnflow-s41-waste-bound": combine.shown_beside(
            rules.all_below(WASTE, 0.5), {"over slots": WASTE.where(baseline="slots")}, ""
        ),
        "gnnflow-s42-metadata-much-smaller": combine.by_model(
            rules.all_above(
                column("edge MB", "Adaptive", dataset=TWINS)
                / (column("metadata MB", "Adaptive") + counted("vertices") * (NODE_ENTRY / MIB)),
                ORDERS, unit="x",
            ), FORMULA,
        ),
        "gnnflow-s62-edge-memory-overhead": rules.all_within(
            above_static("Fixed-size", "Adaptive").where(dataset=TWINS), *ABOUT_5, unit="%"
        ),
        **{
            f"gnnflow-tab6-{graph}-{word}": column_of_table(graph, name)
            for graph, (name, word) in product(TWINS, COLUMNS.items())
        },
        "gnnflow-s62-list-reduction": rules.near_claim(SHORTER.where(dataset="gdelt"), above=1.0),
        "gnnflow-s62-extra-edge-memory": rules.at_most_claim(
            100
            * (column("edge MB", "Adaptive", dataset=TWINS) / column("edge MB", "Strawman") - 1)
        ),
        "gnnflow-s62-metadata-reduced": rules.all_below(
            column("metadata MB", "Adaptive") / column("metadata MB", "Strawman"), 1.0, unit="x"
        ),
    }  # fmt: skip
    timeout_s: ClassVar[Any] = {"paper": 3600, None: 300}

    def points(self, preset: Preset, device: str) -> Iterable[dict[str, Any]]:
        for name, scales in SCALES.items():
            yield {"dataset": name, "scale": scales[PRESETS.index(preset)]}
        for name in (*HELD.get(preset, ALL_HELD), CONSTRUCTED):
            yield {"dataset": name, "scale": 1.0}

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        name, scale = str(cell.params["dataset"]), float(cell.params["scale"] or 1.0)
        if name == CONSTRUCTED:
            return _constructed()
        return _twin(BY_NAME[name], scale) if name in TWINS else _held(BY_NAME[name])


def _twin(graph: StreamGraph, scale: float) -> Measurement:
    root = math.sqrt(scale)
    batch, tau, fixed = (max(1, round(one * root)) for one in (INJECTED, graph.tau, graph.fixed))
    about = twins.describe(graph.name, scale)
    notes = "; ".join(about["notes"])
    data = {"dataset": graph.name, "twin": True, "scale": scale, "note": notes}
    chunks = twins.stream(graph.name, scale, chunk=batch)
    return _measured(chunks, about["vertices"], policies(tau, fixed), graph.undirected, data)


def _held(graph: StreamGraph) -> Measurement:
    events = datasets.open_events(graph.name)
    chunks = zip(
        *(np.split(ends.numpy(), range(HELD_BATCH, len(events), HELD_BATCH))
          for ends in (events.src, events.dst)), strict=True,
    )  # fmt: skip
    layouts, data = policies(graph.tau, graph.fixed), describe(events)
    told = _measured(chunks, events.num_nodes, layouts, graph.undirected, data)
    told.observe("events", int(events.t.unique().numel()), of="time stamps")
    return told


def _measured(
    chunks: Iterable[tuple[np.ndarray, np.ndarray]],
    num_vertices: int,
    layouts: Mapping[str, BlockPolicy],
    undirected: bool,
    data: dict[str, Any],
) -> Measurement:
    """Counts of every layout over batches of edges, and the store itself beside Adaptive's."""
    counts = {name: BlockCounts(num_vertices, policy) for name, policy in layouts.items()}
    store = TemporalStore(num_vertices, policy=layouts["Adaptive"], undirected=undirected)
    events = merged = 0
    for src, dst in chunks:
        owners = np.concatenate([src, dst]) if undirected else src
        found = np.bincount(owners, minlength=num_vertices)
        vertices = np.flatnonzero(found)
        for one in counts.values():
            one.add(vertices, found[vertices])
        ends = torch.from_numpy(src.astype(np.int64)), torch.from_numpy(dst.astype(np.int64))
        now = torch.arange(events, events + len(src), dtype=torch.float64)
        merged += store.insert(*ends, now).merged
        events += len(src)
    told = Measurement(data=data)
    told.observe("events", events)
    told.observe("vertices", num_vertices)
    memory = store.memory()
    told.observe("memory", memory.held["blocks"] // max(1, memory.blocks), of="block")
    told.observe("vertices", merged, of="merged")
    told.observe("vertices", _out_of_order(store), of="out of order")
    for name, one in counts.items():
        told.observe("list_blocks", int(one.blocks.sum()), setting=name)
        longest = int(one.blocks.max(initial=0))
        told.observe("list_blocks", longest, setting=name, statistic="longest")
        told.observe("slots", one.slots, setting=name)
    checks = [_agreement(store, counts["Adaptive"]), *_layout_checks(counts, store)]
    told.deviation = {"blocks": max(check.gap for check in checks)}
    told.checks = by_subject(checks)
    return told


def _agreement(store: TemporalStore, counted: BlockCounts) -> ResultCheck:
    """A check of a store's blocks against counting."""
    memory = store.memory()
    own = {"slots": memory.slots, "records": memory.records, "blocks": memory.blocks,
           "lists": store.list_lengths().long()}  # fmt: skip
    wanted = {"slots": counted.slots, "records": counted.records, "blocks": counted.blocks.sum(),
              "lists": counted.blocks}  # fmt: skip
    return equal("counters", own, wanted, against="blocks counted without records")


def _layout_checks(counts: Mapping[str, BlockCounts], store: TemporalStore) -> list[ResultCheck]:
    """Checks of records, slots and blocks of the layouts that have a closed form for them."""
    degree = store.degrees().numpy().astype(np.int64)
    total = int(degree.sum())
    checks = []
    for name, one in counts.items():
        own, exact = {"records": one.records}, {"records": total}
        if one.policy.name in ("static", "strawman"):
            own["slots"], exact["slots"] = one.slots, total
        if one.policy.name == "fixed":
            blocks = -(-degree // one.policy.size)
            own |= {"blocks": one.blocks, "slots": one.slots}
            exact |= {"blocks": blocks, "slots": one.policy.size * int(blocks.sum())}
        checks.append(equal("counters", own, exact, against="records of each vertex", system=name))
    return checks


def _out_of_order(store: TemporalStore, most: int = 2000) -> int:
    """Vertices, of up to `most` spread over all, whose records are not in the order of time."""
    step = max(1, store.num_vertices // most)
    times = (store.neighbours(v)[2] for v in range(0, store.num_vertices, step))
    return sum(bool((one.diff() < 0).any()) for one in times)


def _constructed(vertices: int = 16, batches: int = 1025) -> Measurement:
    """Waste where no threshold binds, and the longest lists by both readings of the rule."""
    store = TemporalStore(vertices, policy=BlockPolicy("adaptive_literal", 1 << 20))
    ids = torch.arange(vertices)
    of_records = of_slots = 0.0
    for now in range(batches):
        store.insert(ids, ids, torch.full((vertices,), float(now), dtype=torch.float64))
        memory = store.memory()
        of_records = max(of_records, memory.slots / memory.records - 1)
        of_slots = max(of_slots, 1 - memory.records / memory.slots)
    told = Measurement(
        data={"dataset": CONSTRUCTED, "twin": False, "scale": 1.0, "note": "constructed"}
    )
    told.observe("vertices", vertices)
    for name in TWINS:
        for rule, length in _hub(BY_NAME[name]).items():
            told.observe("list_blocks", length, dataset=name, setting=rule, statistic="longest")
    # One record a batch: where no slot is free, a block of as many slots as there are records.
    wanted, slots, free = {"edges": 0.0, "slots": 0.0}, 0, 0
    for records in range(1, batches + 1):
        made = 0 if free else records
        slots, free = slots + made, free + made - 1
        waste = slots / records
        wanted["edges"] = max(wanted["edges"], waste - 1)
        wanted["slots"] = max(wanted["slots"], 1 - 1 / waste)
    waste = {"edges": of_records, "slots": of_slots}
    for over, share in waste.items():
        told.observe("portion", share, of="empty slots", baseline=over)
    told.checks = [close("counters", waste, wanted, 1e-9, against="rule applied by hand")]
    return told


def _hub(graph: StreamGraph) -> dict[str, int]:
    """Longest lists of the vertex of largest degree, spread evenly over the batches that have it.

    Both numbers are in Table 6: its degree is the longest list of Fixed-size times the slots of a
    block, and the strawman's longest list counts its batches. How many records a batch brings is
    drawn from a Poisson distribution with seed 1.
    """
    printed = printed_table(graph.name)
    degree = printed["Fixed-size"]["longest"] * graph.fixed
    batches = printed["Strawman"]["longest"]
    arrivals = np.random.default_rng(1).poisson(degree / batches, int(batches))
    lists = {rule: BlockCounts(1, BlockPolicy(name, graph.tau)) for rule, name in RULES.items()}
    for count in arrivals[arrivals > 0]:
        for one in lists.values():
            one.add(np.zeros(1, np.int64), np.array([count]))
    return {rule: int(one.blocks[0]) for rule, one in lists.items()}
