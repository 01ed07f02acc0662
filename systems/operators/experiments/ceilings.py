"""Limits of a device, one for each assumption behind the predictions of its operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from dgbench.lab.experiment import FigureSpec, Preset
from dgbench.lab.result_checks import at_most
from dgbench.lab.table import Table
from dgbench.runtime.errors import UnsupportedError
from dgbench.systems.operators.ceilings import kernels
from dgbench.systems.operators.ceilings.calls import CEILINGS, WARM
from dgbench.systems.operators.race import OURS, OperatorCase, OperatorRace
from dgbench.systems.operators.roofs import ROOFS, limit_share, machine_limits

ASSUMED = "assumed for an H200"
SMOKE = 1 / 2000
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
        limits = machine_limits(rows, place="device")
        mine = Table.of(rows, paper=self.paper, device="cuda")
        points = []
        for (name, group), found in mine.where(ROOFS).by("experiment", "group").items():
            one = limit_share(found, limits)
            if name == self.name or one is None:
                continue
            unit = "GB/s" if one.bound == "bandwidth" else "GFLOP/s"
            points.append(
                {
                    "row": f"{name}, {group.partition('/')[2]}", "system": OURS, "unit": unit,
                    "value": one.value / 1e9, "limit": one.limit / 1e9,
                    "limit_name": ROOF_NAMES[one.bound], "row_ids": one.rows,
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
