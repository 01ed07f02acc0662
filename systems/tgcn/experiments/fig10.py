"""Figure 10: T-GCN on 1, 4 and 8 GPUs, with P2P and without."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from statistics import geometric_mean
from typing import Any

from dgbench.lab import outcomes, rules
from dgbench.lab import rule_combinations as combine
from dgbench.lab.estimates import Estimate, EvaluationContext
from dgbench.lab.figure_forms import FigureForm, Sweep
from dgbench.lab.grid import by_preset
from dgbench.lab.quantities import MeasuredQuantity, computed, observed
from dgbench.lab.ranks import devices_lacking
from dgbench.lab.study import FormExperiment
from dgbench.runtime.threads import one_thread
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.tgcn.printed import values
from dgbench.systems.tgcn.scaling_cells import (
    ARITHMETIC,
    BANDWIDTH,
    DEVICES,
    OFF,
    ON,
    PRINTED,
    PRINTED_FOR,
    PROCESSOR,
    measure_ranks,
    measure_virtual,
    project_swaps,
    task_of_size,
)
from dgbench.systems.tgcn.settings import FORMS, TWIN_NAMES

VIRTUAL, RANKS, SWAPS = "virtual", "ranks", "swaps"
RANKED = {"smoke": (1, 2), "quick": (1, 2), None: (1, 2, 4)}
TWINS = {"smoke": ("reddit",), "quick": ("lastfm", "reddit", "twitter"), None: TWIN_NAMES}
"""The paper's figure names the three; whether Flickr was drawn is lost."""
RANKED_ON = "flickr"
SHOWN = {
    "tgcn, equal width": ("equal", ON, PRINTED),
    "tgcn, dealt": ("dealt", ON, PRINTED),
    "tgcn, dealt at peak speed": ("dealt", ON, ARITHMETIC),
    "tgcn, the same without P2P": ("dealt", OFF, ARITHMETIC),
}
"""Series of the figure: cut, P2P and speed of a V100. At the speed of Table 2, which the first two
have, P2P changes nothing that shows."""
MODEL = "projection to V100 by published links"
SPEEDS = {
    "a V100 as slow as Table 2 prints": PRINTED,
    "a V100 by memory bandwidth": BANDWIDTH,
    "a V100 by arithmetic": ARITHMETIC,
}
CLEAR = 0.05
"""Distance from 1x that a projection tells from none: what it is off by on one device here."""

SPEED = observed("speedup", kind=VIRTUAL, per="dataset").pooled("mean")
"""Projected speed over one device."""
EQUAL = SPEED.where(method="equal", p2p=ON)
RANKED_SPEED = observed("throughput", kind=RANKS, method=PROCESSOR, per=("dataset", "ranks"))
MODELLED = observed("speedup", kind=VIRTUAL, per="dataset", setting="measured", baseline="pieces")


def by_speed(rule: Callable[[str], outcomes.Rule]) -> outcomes.Rule:
    """A projected rule with an interpretation for each speed of a V100."""
    return combine.interpretations(
        "how fast a V100 computes is open",
        {words: combine.by_model(rule(speed), MODEL) for words, speed in SPEEDS.items()},
    )


def mean_speed(devices: int, entry: str = "mean") -> outcomes.Rule:
    """Projected speed of so many devices with P2P over one, on average over the graphs.

    Args:
        entry: of the claim's value; its range where it has none of this name.
    """

    def mean(cut: str, speed: str) -> MeasuredQuantity:
        of = SPEED.where(method=cut, p2p=ON, ranks=devices, setting=speed)
        return of.joined_over(geometric_mean, "dataset")

    return by_speed(
        lambda speed: combine.shown_beside(
            rules.near_claim(mean("equal", speed), above=1.0, entry=entry),
            {"vertices dealt out": mean("dealt", speed)},
        )
    )


def projected(context: EvaluationContext) -> Iterator[tuple[Mapping[str, Any], Estimate]]:
    """Speed over one device by series of the figure, and 1 on one."""
    for title, (cut, p2p, speed) in SHOWN.items():
        series = SPEED.where(method=cut, p2p=p2p, setting=speed).per("ranks")
        for at, one in series.estimates(context).items():
            dims = {**dict(at), "setting": title}
            if dims["ranks"] == min(PRINTED_FOR):
                yield {**dims, "ranks": 1}, Estimate(1.0, rows=one.rows)
            yield dims, one


def printed_speed(end: str) -> MeasuredQuantity:
    """An end of the printed range beside each projected speed."""
    speed = EQUAL.where(setting=PRINTED, ranks=PRINTED_FOR)
    return speed.printed(lambda at: values()[f"fig10-{at['ranks']}gpu"][end])


def of_projection(context: EvaluationContext, dims: Mapping[str, Any], one: Any) -> dict[str, Any]:
    """Words of the model on a projected mark."""
    if "setting" not in dims:
        return {}
    modelled = MODELLED.where(dataset=dims["dataset"]).estimates(context).values()
    return {
        "projected": True,
        "model_error": next((abs(each.value - 1) for each in modelled), None),
        "model_error_on": "an epoch on one device here",
    }


class Fig10(FormExperiment):
    forms, name = FORMS, "fig10"
    group = ""
    timeout_s = {"smoke": 90, "quick": 90, None: 3600}
    headline = SPEED.where(p2p=ON, ranks=DEVICES[-1], setting=PRINTED).per("method")
    unit = "x"
    figure_forms = (
        FigureForm(
            "scaling", "fig10",
            "Speed over one V100 as slow as Table 2, or at its peak (Figure 10)",
            {
                "": computed(projected, per=("dataset", "setting", "ranks")),
                "low": printed_speed("low"),
                "high": printed_speed("high"),
                "ranks": RANKED_SPEED.over(RANKED_SPEED.where(ranks=1)),
            },
            {"panel": "{dataset}", "series": "{setting}{of}", "x": "ranks"}, more=of_projection,
            gaps={"series": "tgcn, dealt"},
            options={
                "xlabel": "ranks or GPUs", "ylabel": "speed over one",
                "topology": "DGX-1, 8 V100, NVLink 2 between four and four, else PCIe",
                "most": DEVICES[-1], "here": "processes of one CPU by processor time, one run",
            },
        ),
        Sweep(
            "fig10_bytes", "Bytes that devices pass on in an epoch",
            observed("swapped", kind=VIRTUAL, per=("dataset", "ranks"), method=None,
                     ranks=lambda count: count > 1),
            series="{dataset}", x="ranks", gaps={"x": 2}, xlabel="devices", ylabel="bytes", base=2,
        ),
    )  # fmt: skip
    claims = {
        "tgcn-fig10-8gpu": mean_speed(8, entry=""),
        "tgcn-fig10-4gpu": mean_speed(4, entry=""),
        "tgcn-s67-p2p-off-slowdown": by_speed(
            lambda speed: rules.all_below(
                SPEED.where(method="equal", p2p=OFF, ranks=4, setting=speed), 1.0, near=CLEAR,
                unit="x",
            )
        ),
        "tgcn-s67-p2p-benefit": by_speed(
            lambda speed: rules.all_above(
                EQUAL.where(ranks=PRINTED_FOR, setting=speed)
                / SPEED.where(method="equal", p2p=OFF, ranks=PRINTED_FOR, setting=speed),
                1.0, near=CLEAR, unit="x",
            )
        ),
        "tgcn-abs-8gpu-mean-scaling": mean_speed(8),
        "tgcn-fig6-8gpu-included": by_speed(
            lambda speed: combine.as_proxy(
                rules.all_above(
                    EQUAL.where(ranks=8, setting=speed), 1.0, near=CLEAR, unit="x"
                ),
                "training alone: sampling is the host's and no faster with more GPUs",
            )
        ),
    }  # fmt: skip

    def points(self, preset: Preset, device: str) -> Iterable[dict[str, Any]]:
        yield from ({"kind": VIRTUAL, "dataset": name} for name in by_preset(TWINS, preset))
        yield {"kind": SWAPS}
        # One process on this CPU's two cores bounds no ratio, and no claim reads it.
        for ranks in () if (preset, device) == ("quick", "cpu") else by_preset(RANKED, preset):
            yield {"kind": RANKS, "dataset": RANKED_ON, "ranks": ranks}

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        return [
            self.cell(
                one,
                preset,
                group=f"{one['kind']}/{one.get('dataset', '')}",
                unavailable=devices_lacking(one.get("ranks", 1), device),
            )
            for one in self.points(preset, device)
        ]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        kind = cell.params["kind"]
        with one_thread():
            if kind == SWAPS:
                return project_swaps()
            task = task_of_size(str(cell.params["dataset"]), context.preset)
            if kind == RANKS:
                return measure_ranks(task, int(cell.params["ranks"]), context, cell.timeout_s)
            return measure_virtual(task, context)
