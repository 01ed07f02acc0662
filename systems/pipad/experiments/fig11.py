"""Figure 11: one graph layer, reuse off (section 5.3): PyG's layer, a CSR product, and PiPAD's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from dgbench.lab import outcomes, rules
from dgbench.lab import rule_combinations as combine
from dgbench.lab.estimates import Estimate, EvaluationContext
from dgbench.lab.figure_forms import FigureForm, SpeedupBars, Sweep
from dgbench.lab.grid import by_preset
from dgbench.lab.quantities import MeasuredQuantity, observed, speedup
from dgbench.lab.result_checks import at_most
from dgbench.lab.study import FormExperiment
from dgbench.lab.table import Entry, Table
from dgbench.runtime.steady import measure_steady
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.base.race import TOLERANCE
from dgbench.systems.pipad.experiments.common import QUICK, SMOKE, open_graph
from dgbench.systems.pipad.experiments.settings import ALL, BY_NAME, EXTRAS, FORMS
from dgbench.systems.pipad.ladders import BARE, PUBLISHED
from dgbench.systems.pipad.layers import (
    Layer,
    csr_layer,
    layer_deviation,
    pipad_layer,
    published_layer,
    pyg_layer,
    single_layer,
    torch_layer,
)
from dgbench.systems.pipad.partitions import Partitions

METHODS = ("pygt", "pygt-g", BARE, PUBLISHED, "pipad")
CUSPARSE = "cuSPARSE"
"""Not in the paper: torch's CSR product on a CUDA device, which is cuSPARSE."""
S_PER = 8
OURS = {graph.name for graph in EXTRAS}
"""Graphs that no claim counts."""
GRAPHS = {
    "smoke": [name for name in SMOKE if name not in OURS],
    "quick": [name for name in QUICK if name != "flickr"],  # no verdict turns without it
    None: [graph.name for graph in ALL],
}
DIMS = {"smoke": (2, 16), "quick": (2, 32), None: (2, 4, 8, 16, 32, 64)}
WIDTHS_OF = "covid19-england"
"""Graph that `quick` has at several feature lengths."""


def at_printed_length(entries: list[Entry], context: EvaluationContext) -> list[Entry]:
    """Entries at the feature length that the paper has for a graph."""
    return [one for one in entries if one["dim"] == BY_NAME[one["dataset"]].feature_dim]


def of_the_paper(entries: list[Entry], context: EvaluationContext) -> list[Entry]:
    """Entries on graphs of the paper."""
    return [one for one in entries if BY_NAME[one["dataset"]].printed]


def layer(slow: str, fast: str, *per: str, **where: Any) -> MeasuredQuantity:
    """Time of one layer over that of another."""
    return speedup(observed("operation_time", per=per, **where), slow, fast)


def printed_layer(slow: str, fast: str, *per: str) -> MeasuredQuantity:
    """Time of one layer over that of another, at the paper's feature lengths."""
    return layer(slow, fast, *per).keep(at_printed_length)


def copy_bandwidth(context: EvaluationContext) -> float | None:
    """Bytes a second that this run's machine copies, None where it was not measured."""
    copies = Table.of(context.rows, paper="-", experiment="machine").where("bandwidth")
    limits = copies.where(place="device") or copies.where(place="host", using="all")
    return limits[-1].value if limits else None


def beside_limit(entries: list[Entry], context: EvaluationContext) -> list[Entry]:
    """Entries of a run that measured its copy bandwidth, else none."""
    return entries if copy_bandwidth(context) is not None else []


def limit(context: EvaluationContext, dims: Mapping[str, Any], one: Estimate) -> Mapping[str, Any]:
    """The limit beside a mark of `limit_share`."""
    return {"limit": (copy_bandwidth(context) or 0.0) / 1e9, "limit_name": "copy bandwidth",
            "unit": "GB/s"}  # fmt: skip


OVER_ENGINE = printed_layer(BARE, PUBLISHED)
"""PiPAD's layer as published against one snapshot at a time on our engine."""
SMALL_LAYERS = layer(BARE, PUBLISHED, "dataset", "dim", size="small")


def over_engine(slow: str, named: str) -> outcomes.Rule:
    """The average gain over our engine's layer, with the factor over a released one beside it."""
    return combine.shown_beside(
        rules.near_claim(OVER_ENGINE, above=1.0),
        {f"over {named}": printed_layer(slow, PUBLISHED),
         "of which re-implementation": printed_layer(slow, BARE)},
    )  # fmt: skip


class Fig11(FormExperiment):
    forms, name = FORMS, "fig11"
    group = "{dataset}/{dim}"
    repeats = {"smoke": 1, "quick": 5, None: 7}
    timeout_s = 120
    headline, unit = printed_layer("pygt", PUBLISHED, "dataset"), "x"
    figure_forms = (
        SpeedupBars(
            "fig11a", "One graph layer: speed-up over PyGT",
            {name: printed_layer("pygt", name, "dataset") for name in (*METHODS[1:], CUSPARSE)},
            row="{dataset}", system="of", baseline="pygt", baseline_label="PyGT (PyG GCNConv)",
            xlabel="speed-up over PyGT",
        ),
        Sweep(
            "fig11b", "One graph layer over feature length",
            layer("pygt", PUBLISHED, "dataset", "dim", size="small").keep(of_the_paper),
            series="{dataset}", x="dim", xlabel="feature length (floats)",
            ylabel="speed-up over PyGT", base=2, hline=1.0, hline_label="PyGT",
        ),
        FigureForm(
            "limit_share", "fig11_limit", "One graph layer: rate of memory traffic against copying",
            observed("bandwidth", per="dataset", system=PUBLISHED)
            .keep(at_printed_length, beside_limit).pooled("median"),
            {"row": "{dataset}", "system": PUBLISHED}, value="value", scale=1e-9, more=limit,
        ),
    )  # fmt: skip
    claims = {
        "pipad-fig11a-gnn-speedup-pygt": over_engine("pygt", "PyG's layer"),
        "pipad-fig11a-gnn-speedup-pygtg": over_engine("pygt-g", "torch's CSR product"),
        "pipad-fig11a-denser-better": rules.clearly_larger(
            printed_layer(BARE, PUBLISHED, "density"), {"density": "denser"}
        ),
        "pipad-fig11b-dim-sensitivity": combine.shown_beside(
            rules.near_claim(
                SMALL_LAYERS.joined_over(min, "dataset", "dim"), above=1.0, entry="low",
                needs_interval=True,
            ),
            {"over PyG's layer": layer("pygt", PUBLISHED, size="small")},
        ),
        "pipad-fig11b-small-dim-better": rules.rising(SMALL_LAYERS, "dim", falling=True),
    }  # fmt: skip

    def points(self, preset: Preset, device: str) -> list[dict[str, Any]]:
        graphs = [BY_NAME[name] for name in by_preset(GRAPHS, preset)]
        raced = (*METHODS, CUSPARSE) if device == "cuda" else METHODS
        found = [(graph.name, graph.feature_dim, raced) for graph in graphs]
        found += [
            (graph.name, dim, ("pygt", BARE, PUBLISHED, "pipad"))
            for dim in by_preset(DIMS, preset)
            for graph in graphs
            if graph.small and graph.printed and dim != graph.feature_dim
            if preset != "quick" or graph.name == WIDTHS_OF
        ]
        return [
            {"dataset": name, "dim": dim, "system": system}
            for name, dim, systems in found
            for system in systems
        ]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        graph = BY_NAME[str(cell.params["dataset"])]
        dim = int(cell.params["dim"])  # type: ignore[arg-type]
        data = open_graph(graph, context.preset, feature_dim=dim)
        times = range(len(data) - S_PER, len(data))
        csrs = [data.topology[t] for t in times]
        x = data.features[times.start : times.stop].to(context.device).contiguous()
        draw = torch.Generator().manual_seed(1)
        weight = torch.randn(dim, graph.hidden_dim, generator=draw).to(context.device)
        partitions = Partitions(data, norm="sym", device=context.device)
        layers: dict[str, Callable[[], Layer]] = {
            "pygt": lambda: pyg_layer(csrs, x, weight),
            "pygt-g": lambda: csr_layer(csrs, x, weight),
            CUSPARSE: lambda: torch_layer(csrs, x, weight),
            BARE: lambda: single_layer(partitions, times, x, weight),
            PUBLISHED: lambda: published_layer(partitions, times, x, weight),
            "pipad": lambda: pipad_layer(partitions, times, x, weight),
        }
        layer = layers[str(cell.params["system"])]()
        with torch.no_grad():
            gaps, found = {}, layer()
            if context.round == 1:
                gaps["before timing"] = layer_deviation(found, csrs, x, weight)
            sync = torch.cuda.synchronize if context.device == "cuda" else None
            steady = measure_steady(layer, budget_s=context.budget_s, sync=sync)
            gaps["after timing"] = layer_deviation(layer(), csrs, x, weight)
        # Every neighbour's row and index counted as traffic, features and results once.
        moved = sum(csr.nnz for csr in csrs) * (4 * dim + 4)
        moved += 4 * data.num_nodes * S_PER * (dim + graph.hidden_dim)
        count = S_PER * data.num_nodes * graph.hidden_dim
        checks = [
            at_most("outputs", gap, TOLERANCE, against="float64 layer", compared=count, part=when)
            for when, gap in gaps.items()
        ]
        measured = Measurement(
            warmup=steady.warmup,
            deviation={"output": max(gaps.values())},
            checks=checks,
            data=describe(data),
        )
        measured.observe("operation_time", steady.time, samples=steady.samples)
        measured.observe("bandwidth", moved / steady.time)
        return measured
