"""Section 4.4: the identity hash beside other partitions, edge-cut beside vertex-cut, who samples.

Everything here is counted; nothing is timed.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from functools import partial
from typing import Any, ClassVar, Final

import torch

from dgbench.lab import rule_combinations as combine
from dgbench.lab import rules
from dgbench.lab.estimates import gaps_of_failures, prefer, real_data
from dgbench.lab.figure_forms import Sweep
from dgbench.lab.grid import by_preset
from dgbench.lab.quantities import MeasuredQuantity, observed
from dgbench.lab.study import FormExperiment
from dgbench.runtime.threads import one_thread
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.gnnflow.experiments.partition_checks import (
    asked_by_loop,
    asked_by_search,
    asked_check,
    assignment_check,
    degree_check,
    places_check,
    served_check,
    shares_check,
)
from dgbench.systems.gnnflow.experiments.sample_checks import samples_check
from dgbench.systems.gnnflow.experiments.settings import BY_NAME, FORMS, SETTINGS, workload
from dgbench.systems.gnnflow.partitioners import PARTITIONERS, partition

NAME: Final = "partition"
BALANCE, CUTS, SERVING = "balance", "cuts", "serving"
MACHINES: Final = (2, 4, 8)
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
COUNTED: Final = {"smoke": (4,), "quick": (4,), None: (2, 4, 8)}
"""Numbers of machines for which cuts are counted."""
MAX_GREEDY_VERTICES: Final = {"smoke": 3_000, "quick": 9_500, None: 150_000}
"""Vertices up to which the online partitioners, loops in Python, are run."""
MAX_METIS_EDGES: Final = {"smoke": 300_000, "quick": 300_000, None: 5_000_000}
"""Edges up to which METIS is run."""
MAX_HDRF_EDGES: Final = {"smoke": 60_000, "quick": 70_000, None: 600_000}
FANOUT: Final = 10
LOOPED: Final = 1_500
"""Events, or targets, that loops in Python go over to check what is counted of all."""
LOOPED_ROOTS: Final = 64
STRIDE: Final = 8
"""Ids that are all multiples of it, as where a shard's number stands in the low bits."""
CLUSTER: Final = (4, 8)
"""Machines and GPUs of each of the paper's check of balance."""
SERVED: Final = {"smoke": 40, "quick": 200, None: 4000}
"""Events of a rank's batch at most."""

EVEN: Final = 0.05
"""Excess over the mean up to which vertices count as evenly distributed."""


def counted(metric: str, setting: str | tuple[str, ...], **where: Any) -> MeasuredQuantity:
    """Counts of partitions, cuts or schedules by graph."""
    return observed(metric, per="dataset", setting=setting, **where).keep(gaps_of_failures)


def excess(setting: str | tuple[str, ...], of: Any = "records") -> MeasuredQuantity:
    """Percent of the fullest of 4 machines beyond the mean."""
    return 100 * counted("excess", setting, of=of, machines=4)


def exchanged(setting: str | tuple[str, ...]) -> MeasuredQuantity:
    """Bytes that sampling takes from 4 machines."""
    return counted("exchanged", setting, machines=4)


def variation(setting: str | tuple[str, ...]) -> MeasuredQuantity:
    """Coefficient of variation of what 32 ranks sample for each other."""
    return counted("variation", setting).per("model")


VERTEX_CUTS: Final = ("vertex-cut random", "vertex-cut dbh", "vertex-cut hdrf")
ON_GDELT: Final = variation("static").keep(
    prefer(lambda entries, context: [one for one in entries if one["dataset"] == "gdelt"])
)


class Partition(FormExperiment):
    forms, name = FORMS, NAME
    sources: ClassVar[Any] = {"portion": "counted", "variation": "counted"}
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
            / observed("targets", per="dataset", machines=4),
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
    notes = found.notes
    for by in PARTITIONERS:
        greedy, metis = by in ("fennel", "ldg"), by.startswith("metis")
        if greedy and count > by_preset(MAX_GREEDY_VERTICES, preset):
            notes.append(f"{by} is a loop in Python and was left out at {count} vertices")
            continue
        if metis and len(events) > by_preset(MAX_METIS_EDGES, preset):
            notes.append(f"{by} was left out at {len(events)} edges")
            continue
        for machines in (4,) if greedy or metis else MACHINES:
            owners, seconds = partition(by, count, src, dst, machines)
            part = shares(owners, src, dst, undirected=graph.undirected)
            name = f"{by}, {machines} machines"
            found.checks += [
                assignment_check(owners.of(torch.arange(count)), count, machines, name),
                places_check(owners, count, name),
                shares_check(part, owners, src, dst, undirected=graph.undirected, name=name),
            ]
            which = {"setting": by, "machines": machines}
            found.observe("excess", part.record_excess, of="records", **which)
            found.observe("excess", part.vertex_excess, of="vertices", **which)
            found.observe("portion", part.cut, of="cut edges", **which)
            found.observe("operation_time", seconds, **which)
    far, owners = (src * STRIDE, dst * STRIDE), IdentityHash(4)
    strided = shares(owners, *far, undirected=graph.undirected)
    which = {"setting": "strided", "machines": 4}
    found.observe("excess", strided.record_excess, of="records", **which)
    found.checks.append(
        shares_check(strided, owners, *far, undirected=graph.undirected, name="hash of strides")
    )
    # The most records that one vertex has: no assignment of whole vertices can be more even.
    degree = torch.bincount(src, minlength=count)
    if graph.undirected:
        degree = degree + torch.bincount(dst, minlength=count)
    hub = float(degree.max()) / float(degree.sum())
    found.observe("portion", hub, of="largest vertex")
    found.checks.append(degree_check(degree, src, dst, undirected=graph.undirected))
    found.observe("vertices", count)
    found.observe("events", len(events))
    found.observe("records", int(degree.sum()))


def _cuts(found: Measurement, graph: Any, events: Any, preset: Preset) -> None:
    """Observe the remote requests of sampling under edge-cuts and vertex-cuts."""
    from dgbench.systems.gnnflow.vertex_cut import (
        asked_edge_cut,
        asked_vertex_cut,
        edge_machines,
    )

    src, dst, count = events.src, events.dst, events.num_nodes
    first = len(events) // 3
    for machines in by_preset(COUNTED, preset):
        asker = torch.arange(len(events) - first) % machines
        counted = {}
        few = min(len(events), LOOPED)
        begin = few // 2
        part = src[:few], dst[:few], begin, FANOUT, asker[: few - begin]
        cuts = ("edge-cut hash", "edge-cut metis", "vertex-cut random", "vertex-cut dbh")
        drawn_cut = random.SystemRandom().choice(cuts)
        for by in ("hash", "metis"):
            owners, _ = partition(by, count, src, dst, machines)
            name = f"edge-cut {by}"
            counted[name] = asked_edge_cut(owners, src, dst, first, FANOUT, asker)
            machine = owners.of(torch.arange(count))
            loop = asked_by_loop(machine.tolist(), *part, machines, by_edge=False)
            own = asked_edge_cut(owners, *part)
            found.checks.append(asked_check(own, loop, f"{name}, first events"))
            if name == drawn_cut:
                whole = src, dst, first, FANOUT, asker, machines
                again = asked_by_search(None, machine.numpy(), *whole)
                found.checks.append(asked_check(counted[name], again, name))
        for by in ("random", "dbh", "hdrf"):
            if by == "hdrf" and len(events) > by_preset(MAX_HDRF_EDGES, preset):
                continue
            where = edge_machines(by, count, src, dst, machines)
            name = f"vertex-cut {by}"
            counted[name] = asked_vertex_cut(where, machines, src, dst, first, FANOUT, asker)
            own = asked_vertex_cut(where[:few], machines, *part)
            loop = asked_by_loop(where.tolist(), *part, machines, by_edge=True)
            found.checks += [
                # HDRF gives an edge to a machine that knows an end, however many others are empty.
                assignment_check(where, len(events), machines, name, filled=by != "hdrf"),
                asked_check(own, loop, f"{name}, first events"),
            ]
            if name == drawn_cut:
                again = asked_by_search(
                    where.numpy(), None, src, dst, first, FANOUT, asker, machines
                )
                found.checks.append(asked_check(counted[name], again, name))
        for name, asked in counted.items():
            which = {"setting": name, "machines": machines}
            found.observe("requests", asked.requests, **which)
            found.observe("records", asked.records, **which)
            found.observe("exchanged", asked.bytes, **which)
        found.observe("targets", asked.targets, machines=machines)


def _serving(found: Measurement, graph: Any, events: Any, preset: Preset) -> None:
    """Targets and neighbours that each of 32 ranks samples, by model and schedule."""
    from dgbench.kernels_cuda.temporal_sample import sample_hops
    from dgbench.kernels_cuda.temporal_store import TemporalStore
    from dgbench.systems.base.stream import negatives_of, stream_data
    from dgbench.systems.gnnflow.owners import SCHEDULES, IdentityHash, MachineLayout, variation
    from dgbench.systems.gnnflow.serving import root_ranks, served

    layout = MachineLayout(*CLUSTER)
    owners = IdentityHash(layout.machines)
    store = TemporalStore(events.num_nodes, undirected=graph.undirected, origin=events.span[0])
    store.insert(events.src, events.dst, events.t)
    most = by_preset(SERVED, preset)
    for model, setting in SETTINGS.items():
        batch = min(setting.batch, most)
        count = min(layout.ranks * batch, len(events))
        task = workload(graph, model, preset, batch=count, chunks=1, node_dim=1, edge_dim=0)
        data = stream_data(events, task)
        last = torch.arange(len(events) - count, len(events))
        nodes = torch.cat([events.src[last], events.dst[last], negatives_of(task, data, last)])
        times = events.t[last].repeat(3)
        sample = partial(
            sample_hops, store, fanouts=task.fanouts, policy=task.sampling, window=task.window,
            snapshots=task.snapshots, prop_time=task.root_times, seed=task.seed,
        )  # fmt: skip
        samples = sample(nodes, times)
        asker = root_ranks(count, layout.ranks)
        found.checks.append(samples_check(task, events, nodes, times, 0, samples, part=model))
        # All targets where they are few, else those of a few events.
        whole = count * len(samples) * FANOUT ** (len(samples[0]) - 1) <= LOOPED
        few, some = samples, asker
        if not whole:
            at = slice(0, LOOPED_ROOTS)
            few = sample(nodes[at], times[at])
            some = torch.arange(few[0][0].nodes.numel()) % layout.ranks
        for schedule in SCHEDULES:
            work = served(layout, owners, samples, asker, schedule)
            own = work if whole else served(layout, owners, few, some, schedule)
            found.checks.append(served_check(own, layout, few, some, schedule, model))
            each = work.targets + work.records
            found.observe("variation", variation(each), setting=schedule, model=model)
            largest = float(each.max() / each.double().mean())
            found.observe("imbalance", largest, setting=schedule, model=model)
        # Without a schedule to blame: what the machines are asked for as such.
        machine = (work.targets + work.records).view(layout.machines, -1).sum(1)
        found.observe("variation", variation(machine), setting="machines", model=model)
        own = work.remote.diagonal().sum()
        found.observe("batch_size", count // layout.ranks, model=model)
        found.observe("targets", int(work.targets.sum()), model=model)
        found.observe("targets", int(work.remote.sum() - own), model=model, of="remote")
