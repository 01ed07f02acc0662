"""Section 4.4: the identity hash beside other partitions, edge-cut beside vertex-cut, who samples.

Everything here is counted; nothing is timed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Final

import numpy as np
import torch
from torch import Tensor

from dgbench.lab import rule_combinations as combine
from dgbench.lab import rules
from dgbench.lab.estimates import gaps_of_failures, prefer, real_data
from dgbench.lab.figure_forms import Sweep
from dgbench.lab.grid import by_preset
from dgbench.lab.quantities import MeasuredQuantity, observed
from dgbench.lab.result_checks import ResultCheck, at_most, equal
from dgbench.lab.study import FormExperiment
from dgbench.runtime.threads import one_thread
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.gnnflow.experiments.sample_checks import samples_check
from dgbench.systems.gnnflow.experiments.settings import BY_NAME, FORMS, SETTINGS, workload
from dgbench.systems.gnnflow.partitioners import PARTITIONERS, partition

BALANCE, CUTS, SERVING = "balance", "cuts", "serving"
MACHINES: Final = 4
REAL: Final = ("wikipedia", "sx-mathoverflow", "enron", "college-msg", "email-eu-core")
GRAPHS: Final[dict[str | None, dict[str, tuple[str, ...]]]] = {
    "smoke": {"college-msg": (BALANCE, CUTS), "gdelt": (BALANCE, SERVING)},
    "quick": {
        "wikipedia": (BALANCE, CUTS, SERVING),
        "college-msg": (BALANCE, CUTS),
        "enron": (BALANCE,),
        "gdelt": (BALANCE, SERVING),
    },
    None: {
        **dict.fromkeys(REAL, (BALANCE, CUTS, SERVING)),
        "epinions-2011-ratings": (BALANCE,),
        **dict.fromkeys(("reddit", "netflix", "mag"), (BALANCE,)),
        "gdelt": (BALANCE, SERVING),
    },
}
"""Counted quantities by graph. Cuts only on real ones: a twin has no communities."""
WHOLE: Final = ("gdelt",)
"""Twins that are taken at full size, their first events: in a smaller one the largest vertices have
too large a share of the edges."""
FIRST: Final = {"smoke": 60_000, "quick": 100_000, None: 8_000_000}
MAX_GREEDY_VERTICES: Final = {"smoke": 3_000, "quick": 9_500, None: 150_000}
"""Vertices up to which the online partitioners, loops in Python, are run."""
MAX_METIS_EDGES: Final = {"smoke": 300_000, "quick": 300_000, None: 5_000_000}
"""Edges up to which METIS is run."""
MAX_HDRF_EDGES: Final = {"smoke": 60_000, "quick": 70_000, None: 600_000}
FANOUT: Final = 10
STRIDE: Final = 8
"""Ids that are all multiples of it, as where a shard's number stands in the low bits."""
GPUS: Final = 8
"""Of each machine in the paper's check of balance."""
SERVED: Final = {"smoke": 40, "quick": 200, None: 4000}
"""Events of a rank's batch at most."""

EDGES: Final = "count over all edges"
EVEN: Final = 0.05
"""Excess over the mean up to which vertices count as evenly distributed."""


def counted(metric: str, setting: str | tuple[str, ...], **where: Any) -> MeasuredQuantity:
    """Counts of partitions, cuts or schedules by graph."""
    return observed(metric, per="dataset", setting=setting, **where).keep(gaps_of_failures)


def excess(setting: str | tuple[str, ...], of: Any = "records") -> MeasuredQuantity:
    """Percent of the fullest of 4 machines beyond the mean."""
    return 100 * counted("excess", setting, of=of, machines=MACHINES)


def exchanged(setting: str | tuple[str, ...]) -> MeasuredQuantity:
    """Bytes that sampling takes from 4 machines."""
    return counted("exchanged", setting, machines=MACHINES)


def variation(setting: str | tuple[str, ...]) -> MeasuredQuantity:
    """Coefficient of variation of what 32 ranks sample for each other."""
    return counted("variation", setting).per("model")


VERTEX_CUTS: Final = ("vertex-cut random", "vertex-cut dbh", "vertex-cut hdrf")
ON_GDELT: Final = variation("static").keep(
    prefer(lambda entries, context: [one for one in entries if one["dataset"] == "gdelt"])
)


class Partition(FormExperiment):
    forms, name = FORMS, "partition"
    sources: ClassVar[Any] = {"variation": "counted"}
    device = "cpu"
    headline, unit = excess("hash").keep(real_data), "%"
    figure_forms = (
        Sweep(
            "partition_balance", "Records of the fullest of 4 machines beyond the mean",
            excess(PARTITIONERS), series="{setting}", x="{dataset}",
            gaps={"series": "identity hash"}, xlabel="graph",
            ylabel="% beyond the mean", ylog=False,
        ),
        Sweep(
            "partition_cuts", "Bytes that sampling takes from other machines, 4 machines",
            exchanged(("edge-cut hash", "edge-cut metis", *VERTEX_CUTS))
            / observed("targets", per="dataset", machines=MACHINES),
            series="{setting}", x="{dataset}", gaps={"series": "edge-cut hash"},
            xlabel="graph", ylabel="bytes a target",
        ),
        Sweep(
            "partition_serving",
            "Work of 32 ranks that sample for each other: variation over the ranks",
            variation(("static", "random", "first")), panel="{dataset}", series="{setting}",
            x="{model}", gaps={"series": "same local rank", "x": "TGN"},
            xlabel="model", ylabel="coefficient of variation",
        ),
    )  # fmt: skip
    claims = {
        "gnnflow-s44-hash-balance": combine.interpretations(
            "the paper prints no number, and names partitioners that balance vertices beside it",
            {
                "even in itself": combine.shown_beside(
                    rules.at_most(
                        excess("hash", ("vertices", "records")).keep(real_data), 100 * EVEN,
                        unit="%",
                    ), {f"ids in strides of {STRIDE}": excess("strided").keep(real_data)}, "%",
                ),
                "more even than those that balance vertices": rules.all_below(
                    (excess("hash") - excess(("fennel", "ldg", "metis"))).keep(real_data), 0.0,
                    unit="points",
                ),
            },
        ),
        # Bytes of the best vertex-cut over those of the identity hash's edge-cut.
        "gnnflow-s44-edge-cut-preferred": rules.all_above(
            (exchanged(VERTEX_CUTS) / exchanged("edge-cut hash")).joined_over(min, "setting"),
            1.0, unit="x",
        ),
        "gnnflow-s44-sampling-cv": combine.as_proxy(
            rules.at_most_claim(ON_GDELT.joined_over(max, "dataset")),
            "targets and neighbours that ranks sample, in place of their times",
        ),
    }  # fmt: skip
    timeout_s: ClassVar[Any] = {"smoke": 60, "quick": 60, None: 1800}

    def points(self, preset: Preset, device: str) -> Iterable[dict[str, Any]]:
        return ({"dataset": name} for name in by_preset(GRAPHS, preset))

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        from dgbench import datasets

        graph, preset = BY_NAME[str(cell.params["dataset"])], context.preset
        kinds = by_preset(GRAPHS, preset).get(graph.name, (BALANCE, CUTS, SERVING))
        work = {BALANCE: _balance, CUTS: _cuts, SERVING: _serving}
        with one_thread():
            if graph.name in WHOLE:
                events = first_events(graph.name, by_preset(FIRST, preset))
            else:
                events = datasets.open_events(graph.name, "auto", graph.scale(preset), 1)
            found = Measurement(data=describe(events))
            for kind in kinds:
                work[kind](found, graph, events, preset)
        return found


def first_events(name: str, count: int) -> Any:
    """The first events of a twin of full size; an event's number is its time."""
    from dgbench import datasets
    from dgbench.datasets import twins

    src, dst = next(twins.stream(name, 1.0, 1, chunk=count))
    note = f"the first {count} events of the twin at full size, numbers as times"
    origin = datasets.Origin(name, "twin", 1.0, 1, (note,))
    return datasets.EventStream.build(src, dst, range(count), origin=origin)


def _balance(found: Measurement, graph: Any, events: Any, preset: Preset) -> None:
    """Vertices and records of each machine under every partitioner."""
    from dgbench.systems.gnnflow.owners import IdentityHash, shares

    src, dst, count = events.src, events.dst, events.num_nodes
    degree = torch.bincount(src, minlength=count)
    active = torch.cat([src, dst]).unique()
    if graph.undirected:
        degree = degree + torch.bincount(dst, minlength=count)

    def shares_of(setting: str, owners: Any, stride: int = 1) -> Any:
        """Shares whose records are observed, checked by the records of each vertex."""
        part = shares(owners, stride * src, stride * dst, undirected=graph.undirected)
        machine = owners.of(stride * torch.arange(count))
        records = [int(degree[machine == one].sum()) for one in range(MACHINES)]
        own = {f"records, {setting}": part.records, f"vertices, {setting}": part.vertices}
        vertices = torch.bincount(machine[active], minlength=MACHINES)
        exact = dict(zip(own, (torch.tensor(records), vertices), strict=True))
        found.checks.append(equal("counters", own, exact, against=EDGES))
        found.observe(
            "excess", part.record_excess, of="records", setting=setting, machines=MACHINES
        )
        return part

    for by in PARTITIONERS:
        if by in ("fennel", "ldg") and count > by_preset(MAX_GREEDY_VERTICES, preset):
            found.notes.append(f"{by} is a loop in Python and was left out at {count} vertices")
            continue
        if by.startswith("metis") and len(events) > by_preset(MAX_METIS_EDGES, preset):
            found.notes.append(f"{by} was left out at {len(events)} edges")
            continue
        owners, _ = partition(by, count, src, dst, MACHINES)
        found.checks += [
            assignment_check(owners.of(torch.arange(count)), count, MACHINES, by),
            places_check(owners, count, by),
        ]
        vertex_excess = shares_of(by, owners).vertex_excess
        found.observe("excess", vertex_excess, of="vertices", setting=by, machines=MACHINES)
    shares_of("strided", IdentityHash(MACHINES), STRIDE)


def _cuts(found: Measurement, graph: Any, events: Any, preset: Preset) -> None:
    """Observe the remote requests of sampling under edge-cuts and vertex-cuts."""
    from dgbench.systems.gnnflow.vertex_cut import asked_edge_cut, asked_vertex_cut, edge_machines

    src, dst, count = events.src, events.dst, events.num_nodes
    first = len(events) // 3
    asker = torch.arange(len(events) - first) % MACHINES
    how = src, dst, first, FANOUT, asker
    requested = {}
    for by in ("hash", "metis"):
        owners, _ = partition(by, count, src, dst, MACHINES)
        requested[f"edge-cut {by}"] = asked_edge_cut(owners, *how)
        found.checks.append(assignment_check(owners.of(torch.arange(count)), count, MACHINES, by))
    for by in ("random", "dbh", "hdrf"):
        if by == "hdrf" and len(events) > by_preset(MAX_HDRF_EDGES, preset):
            continue
        machine = edge_machines(by, count, src, dst, MACHINES)
        name = f"vertex-cut {by}"
        requested[name] = asked_vertex_cut(machine, MACHINES, *how)
        found.checks.append(
            # HDRF gives an edge to a machine that knows an end, however many others are empty.
            assignment_check(machine, len(events), MACHINES, name, filled=by != "hdrf")
        )
    for name, asked in requested.items():
        found.observe("exchanged", asked.bytes, setting=name, machines=MACHINES)
    found.observe("targets", asked.targets, machines=MACHINES)


def _serving(found: Measurement, graph: Any, events: Any, preset: Preset) -> None:
    """Targets and neighbours that each of 32 ranks samples, by model and schedule."""
    from dgbench.kernels_cuda.temporal_sample import sample_hops
    from dgbench.kernels_cuda.temporal_store import TemporalStore
    from dgbench.systems.base.stream import negatives_of, stream_data
    from dgbench.systems.gnnflow.owners import SCHEDULES, IdentityHash, MachineLayout, variation
    from dgbench.systems.gnnflow.serving import root_ranks, served

    layout, owners = MachineLayout(MACHINES, GPUS), IdentityHash(MACHINES)
    store = TemporalStore(events.num_nodes, undirected=graph.undirected, origin=events.span[0])
    store.insert(events.src, events.dst, events.t)
    for model, setting in SETTINGS.items():
        batch = min(setting.batch, by_preset(SERVED, preset))
        count = min(layout.ranks * batch, len(events))
        task = workload(graph, model, preset, batch=count, chunks=1, node_dim=1, edge_dim=0)
        last = torch.arange(len(events) - count, len(events))
        negatives = negatives_of(task, stream_data(events, task), last)
        nodes = torch.cat([events.src[last], events.dst[last], negatives])
        times = events.t[last].repeat(3)
        samples = sample_hops(
            store, nodes, times, task.fanouts, policy=task.sampling, window=task.window,
            snapshots=task.snapshots, prop_time=task.root_times, seed=task.seed,
        )  # fmt: skip
        asker = root_ranks(count, layout.ranks)
        found.checks.append(samples_check(task, events, nodes, times, 0, samples, part=model))
        hops = [hop for snapshot in samples for hop in snapshot]
        home = torch.cat([hop.nodes for hop in hops]) % MACHINES
        counts = torch.cat([hop.offsets.diff() for hop in hops])
        exact = {
            "targets": torch.bincount(home, minlength=MACHINES),
            "records": torch.tensor([int(counts[home == one].sum()) for one in range(MACHINES)]),
        }
        for schedule in SCHEDULES:
            work = served(layout, owners, samples, asker, schedule)
            own = {key: getattr(work, key).view(MACHINES, GPUS).sum(1) for key in exact}
            found.checks.append(equal("counters", own, exact, against="owners of all targets"))
            each = work.targets + work.records
            found.observe("variation", variation(each), setting=schedule, model=model)


def assignment_check(
    part: Tensor, vertices: int, machines: int, name: str = "", *, filled: bool = True
) -> ResultCheck:
    """A check that every vertex has one machine, int[N], and, `filled`, no machine is empty."""
    machine = part.numpy()
    wrong = abs(machine.size - vertices) + int(((machine < 0) | (machine >= machines)).sum())
    if filled:
        wrong += min(machines, vertices) - np.intersect1d(machine, np.arange(machines)).size
    return at_most(
        "owners", min(1.0, wrong / max(1, vertices)), 0.0, against="one machine for each vertex",
        compared=vertices, part=name,
    )  # fmt: skip


def places_check(owners: Any, vertices: int, name: str = "") -> ResultCheck:
    """A check that the vertices of a machine have the places 0, 1, ... there, each once."""
    machine, place = (of(torch.arange(vertices)).numpy() for of in (owners.of, owners.local))
    found = np.stack([machine, place], 1)
    counts = [owners.count(m, vertices) for m in range(owners.machines)]
    places = [np.stack([np.full(n, m), np.arange(n)], 1) for m, n in enumerate(counts)]
    wanted = np.concatenate(places)
    found = found[np.lexsort((place, machine))]
    check = equal("owners", found, wanted, against="places without gaps")
    return at_most("owners", check.gap, 0.0, against=check.against, compared=vertices, part=name)
