"""Limits of a device, one for each assumption behind the predictions of its operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import torch

from dgbench.lab.experiment import FigureSpec, Preset
from dgbench.lab.result_checks import at_most
from dgbench.lab.table import Table
from dgbench.runtime.errors import UnsupportedError
from dgbench.systems.operators.ceilings import kernels
from dgbench.systems.operators.ceilings.calls import CEILINGS, WARM
from dgbench.systems.operators.race import OURS, OperatorCase, OperatorRace

ASSUMED = "assumed for an H200"
SMOKE = 1 / 2000
ROOFS = ("bandwidth", "product_rate")
ROOF_NAMES = {"bandwidth": "copy on the device", "product_rate": "matrix product on the device"}


class Ceilings(OperatorRace):
    name = "ceilings"
    title = "What a device can do"
    question = "Are copies, random reads, loads, launches and products as fast as was assumed?"
    reading = (
        "A kernel that does one thing each, compiled when it runs. Above 1 it is faster than the "
        "best value that was assumed for an H200, from its data sheet or from published tests; "
        "predictions of operators rest on these. What was loaded or added up is compared."
    )
    devices = ("cuda",)
    alone = True
    rivals = "what was assumed"
    turns = {"smoke": 2, "quick": 5, None: 10}
    limit_s = {"smoke": 0.0, None: 3.0}
    workloads = {
        preset: tuple({"case": name, "scale": scale} for name in CEILINGS)
        for preset, scale in {"smoke": SMOKE, None: 1.0}.items()
    }
    label = "{case}"

    def figures(self) -> list[FigureSpec]:
        title = "Operators on a device against their roofs"
        roofs = FigureSpec(
            kind="limit_share", name="device_roofs", title=title, points=self.roof_points
        )
        return [*super().figures(), roofs]

    def roof_points(self, rows: Sequence[Any]) -> list[dict[str, Any]]:
        """Traffic or products of ours over what a copy or a product of matrices reaches here."""
        machine = Table.of(row for row in rows if row.paper == "-")
        limits = {one.of.metric: one.value for one in machine.where(ROOFS, place="device")}
        mine = Table.of(rows, paper=self.paper, device="cuda").where(ROOFS, method=OURS)
        points = []
        for (name, group), found in mine.by("experiment", "group").items():
            shares = {
                metric: median(own.values) / limit
                for metric, limit in limits.items()
                if (own := found.where(metric))
            }
            if name == self.name or not shares:
                continue
            bound = max(shares, key=lambda metric: shares[metric])
            unit = "GB/s" if bound == "bandwidth" else "GFLOP/s"
            points.append(
                {
                    "row": f"{name}, {group.partition('/')[2]}", "system": OURS, "unit": unit,
                    "value": shares[bound] * limits[bound] / 1e9, "limit": limits[bound] / 1e9,
                    "limit_name": ROOF_NAMES[bound], "row_ids": [row.id for row in found.rows],
                }
            )  # fmt: skip
        return points

    def case(self, params: Mapping[str, Any], preset: Preset, device: str) -> OperatorCase:
        name = params["case"]
        limit = CEILINGS[name]
        if device == "cuda" and torch.cuda.get_device_capability() < limit.needs:
            raise UnsupportedError("needs sm_" + "".join(map(str, limit.needs)))
        made = limit.make(kernels.open_bench(device, params["scale"]))
        made.run()
        found: list[tuple[str, float, dict[str, Any]]] = []
        if made.clocks is not None:
            found.append(("worker_cycles", made.clocks(), {"statistic": "load"}))
        if device == "cuda":
            cache = torch.cuda.get_device_properties(0).L2_cache_size
            found.append(("memory", cache, {"place": "second-level cache"}))
        bars: tuple[tuple[str, str, float], ...] = ()
        if expected := limit.seconds(made.amount):
            low, high = expected
            bars = ((OURS, ASSUMED, low),)
            found.append(("predicted_time", (low + high) / 2, {"low": low, "high": high}))
        return OperatorCase(
            calls={OURS: lambda _: made.run()},
            check=lambda _, __, ___: at_most(
                "sums", made.wrong(), 0.0, against="what was to be added", compared=1
            ),
            bars=bars,
            warm=(OURS,) if name in WARM else (),
            work=((limit.metric, {}, made.amount),) if limit.metric else (),
            observe=(("requests", int(made.amount), {}), *found),
        )
