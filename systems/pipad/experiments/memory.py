"""Requests, transactions, lanes and balance of aggregation kernels (Figures 5, 11a, 12; 5.3).

Counted from the topology by `kernels_cuda.variants.memory_model`, which says what each kernel
loads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dgbench.kernels_cuda.slices import slice_csr
from dgbench.kernels_cuda.variants import memory_model as model
from dgbench.lab import outcomes, rules
from dgbench.lab import rule_combinations as combine
from dgbench.lab.figure_forms import Sweep
from dgbench.lab.quantities import observed
from dgbench.lab.result_checks import equal
from dgbench.lab.study import FormExperiment
from dgbench.lab.table import Table
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.pipad.experiments.settings import BY_NAME, COUNTED, FORMS, open_graph
from dgbench.systems.pipad.partitions import Partitions, split
from dgbench.systems.pipad.recounts import recount_loads

LOADS = ("requests", "transactions")
KNEE_LENGTHS = (1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
THREAD_DIMS = (2, 6)
GROUPS = 3
MODEL = "counting model of loads"
SAVING = 100 * observed("saving")
"""Percent of GE-SpMM's loads that PiPAD's kernel saves."""
LANES = {
    key: (100 * observed("utilisation", per="dim", part="knees", method=method)).mean_over("dim")
    for key, method in (("pygt_g", "gespmm"), ("pipad", "pipad"))
}
"""Percent of active lanes of the dense loads, by the claim's names of the kernels."""


def knee(found: Table, metric: str) -> int:
    """The longest row that one transaction (request) covers, floats."""
    loads = found.where(metric, method=None).numbers("dim")
    return max(dim for dim, count in loads.items() if count == 1)


def request_lengths(found: Table) -> list[int]:
    """Floats of a request by vector width."""
    return found.where("length", of="request").values


def access_sizes(found: Table) -> dict[str, int]:
    """Bytes of a transaction and of a warp's request, and threads of a warp."""
    return {
        "min_transaction_bytes": 4 * knee(found, "transactions"),
        "warp_request_bytes": 4 * knee(found, "requests"),
        "threads_per_warp": request_lengths(found)[0],
    }


def short_example(found: Table) -> dict[str, int]:
    """Loads of two snapshots of two floats."""
    loads = found.where("transactions", dim=2).numbers("method")
    return {
        "bytes": found.where("memory", dim=2).one().value,
        "transactions": loads["pipad"],
        "gespmm_transactions": loads["gespmm"],
    }


def long_example(found: Table, method: str) -> dict[str, int]:
    """Loads of four snapshots of 16 floats: bytes, requests and transactions."""
    mine = found.where(LOADS, dim=16, method=method)
    loads = {one.of.metric: one.value for one in mine}
    return {"bytes": 4 * 16 * mine[0]["snapshots_together"], **loads}


def knees_equal(value: Callable[[Table], Any]) -> outcomes.Rule:
    """A value of the loads of single rows equals the claim's."""
    return rules.equals_claim(value, part="knees")


class MemoryTraffic(FormExperiment):
    forms, name = FORMS, "memory"
    device = "cpu"
    sources = {"saving": "counted", "utilisation": "counted"}  # by the model of loads and lanes
    axes = {"dataset": COUNTED}
    timeout_s = 300
    headline, unit = SAVING.per("of"), "%"
    figure_forms = (
        Sweep(
            "fig5", "Requests and transactions of one neighbour row",
            {name: observed(name, per="dim", part="knees") for name in LOADS},
            series="of", x="dim", xlabel="feature length (floats)", ylabel="loads", base=2,
        ),
        Sweep(
            "fig11a_memory", "Loads of PiPAD's kernel as a share of GE-SpMM's",
            {
                name: observed(name, per="dataset", part=None, method="pipad")
                / observed(name, per="dataset", part=None, method="gespmm")
                for name in LOADS
            },
            series="of", x="{dataset}", xlabel="graph", ylabel="share of GE-SpMM's loads",
            ylog=False, hline=1.0, hline_label="GE-SpMM",
        ),
    )  # fmt: skip
    claims = {
        "pipad-s32-access-granularity": knees_equal(access_sizes),
        "pipad-fig5-request-transaction-knees": knees_equal(
            lambda found: {f"{name}_knee": knee(found, name) for name in LOADS}
        ),
        "pipad-s42-coalesce-num": knees_equal(
            lambda found: found.where("slices", dim=None).one().value
        ),
        "pipad-s42-vector-widths": knees_equal(request_lengths),
        **{
            f"pipad-fig11a-{name}": combine.by_model(
                rules.near_claim(SAVING.where(of=name), above=0.0), MODEL
            )
            for name in LOADS
        },
        "pipad-fig11a-youtube-memory": combine.interpretations(
            "'memory accesses' may be either",
            {
                name: combine.by_model(
                    rules.largest_at(SAVING.where(of=name).per("dataset"), "dataset", "youtube"),
                    MODEL,
                )
                for name in LOADS
            },
        ),
        "pipad-s53-example-dim2": knees_equal(short_example),
        "pipad-s53-example-dim16": knees_equal(
            lambda found: {name: long_example(found, name) for name in ("gespmm", "pipad")}
        ),
        "pipad-s53-thread-util": combine.by_model(
            rules.entries_near_claim(
                LANES, rules.all_above(LANES["pipad"].less(LANES["pygt_g"]), 0.0)
            ),
            "lane occupancy model",
        ),
    }

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        knees = self.cell({"part": "knees"}, preset, group="knees", timeout_s=60.0)
        return [knees, *super().cells(preset, device)]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        if cell.params.get("part") == "knees":
            return _knees()
        graph = BY_NAME[str(cell.params["dataset"])]
        data = open_graph(graph, context.preset)
        partitions = Partitions(data, norm="sym")
        dim, s_per = graph.feature_dim, 8 if graph.small else 2
        groups = [g for g in split(range(len(data)), s_per) if len(g) == s_per][:GROUPS]
        loads = dict.fromkeys(("gespmm", "pipad"), model.LoadCounts(0, 0))
        for group in groups:
            loads["pipad"] += model.partition_loads(partitions.partition(group).parts, dim)
            for t in group:
                loads["gespmm"] += model.gespmm_loads(data.topology[t], dim)
        last = data.topology[groups[-1][-1]]
        slices = model.slice_work(slice_csr(last), dim * s_per)
        measured = Measurement(
            checks=[*recount_loads(last, dim), *recount_loads(last, dim * s_per)],
            data=describe(data),
        )
        for name in LOADS:
            counts = {method: getattr(one, name) for method, one in loads.items()}
            for method, count in counts.items():
                measured.observe(name, count, method=method)
            measured.observe("saving", 1 - counts["pipad"] / max(1, counts["gespmm"]), of=name)
        measured.observe("imbalance", model.imbalance(model.row_work(last)), of="rows")
        measured.observe("imbalance", model.imbalance(slices), of="slices")
        return measured


def _knees() -> Measurement:
    """Loads of one row by feature length, and the worked examples of section 5.3."""
    measured = Measurement()
    found: dict[str, list[int]] = {}
    for name, loads in zip(LOADS, (model.row_requests, model.row_transactions), strict=True):
        found[name] = [loads(dim) for dim in KNEE_LENGTHS]
        for dim, count in zip(KNEE_LENGTHS, found[name], strict=True):
            measured.observe(name, count, dim=dim)
    # Two snapshots of 2 floats, and four of 16: one by one, and coalescent.
    pair = {"dim": 2, "snapshots_together": 2}
    measured.observe("memory", 2 * 2 * 4, **pair)
    measured.observe("transactions", 2 * model.row_transactions(2), method="gespmm", **pair)
    measured.observe("transactions", model.row_transactions(2 * 2), method="pipad", **pair)
    four, single = 4 * 16, {"method": "gespmm", "dim": 16, "snapshots_together": 1}
    together = {"method": "pipad", "dim": 16, "snapshots_together": 4}
    measured.observe("requests", model.row_requests(16), **single)
    measured.observe("transactions", model.row_transactions(16), **single)
    measured.observe("requests", model.row_requests(four, model.vector_width(four)), **together)
    measured.observe("transactions", model.row_transactions(four), **together)
    most = max(model.thread_groups(dim) for dim in range(1, 129))
    measured.observe("slices", model.thread_groups(2), of="coalesced", dim=2)
    measured.observe("slices", most, of="coalesced")
    for width in model.VECTOR_WIDTHS:
        measured.observe("length", model.WARP * width, of="request", size=width)
    for dim in THREAD_DIMS:
        alone = model.lane_occupancy(dim, coalesce=False)
        measured.observe("utilisation", alone, method="gespmm", dim=dim)
        measured.observe("utilisation", model.lane_occupancy(dim * 2), method="pipad", dim=dim)
    sectors = [len({word // model.SECTOR_WORDS for word in range(d)}) for d in KNEE_LENGTHS]
    wanted = {"requests": [-(-d // model.WARP) for d in KNEE_LENGTHS], "transactions": sectors}
    measured.checks = [equal("counters", found, wanted, against="words of a row, one by one")]
    return measured
