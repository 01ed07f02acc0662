"""What each technique brings: from everything off to everything on, and all but one (ours)."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from dgbench.systems.base import Cell, Experiment, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.base.compare import paired, select
from dgbench.systems.base.race import checked, timed
from dgbench.systems.pipad.experiments.settings import BY_NAME, MODEL_TITLES, workload

ORDER = ("parallel_aggregation", "dimension_aware", "weight_reuse", "reuse", "fused_gates")
"""Switches that change work on this device, in the order they are added. `overlap` and
`sliced_csr` change what is transferred and are counted in the experiment `space`."""

POINTS = {
    "smoke": (("hepth", "tgcn_model"),),
    "quick": (("hepth", "tgcn_model"),),
}
ALL = tuple((d, m) for d in ("flickr", "hepth", "covid19-england") for m in MODEL_TITLES)
ROUNDS = {"smoke": 2, "quick": 5, "full": 7, "paper": 7}


class Ablation(Experiment):
    paper = "pipad"
    name = "ablation"
    title = "Ablation: what each technique brings"
    question = "Which technique earns the speed-up, and does the order matter?"
    reading = (
        "The paper separates only reuse and the CSR variant. Techniques are added one after "
        "another; every setting is exact and checked against the reference."
    )

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        cells = []
        for dataset, model in POINTS.get(preset, ALL):
            base = {"dataset": dataset, "model": model, "system": "pipad"}
            for step in range(len(ORDER) + 1):
                params = {**base, "step": step}
                group = f"{dataset}/{model}"
                cells.append(self._cell({**params, "check": True}, f"{group}/check", 1))
                cells.append(self._cell(params, group, ROUNDS[preset]))
        return cells

    def _cell(self, params: dict[str, Any], group: str, repeats: int) -> Cell:
        return Cell(
            paper=self.paper,
            experiment=self.name,
            params=params,
            group=group,
            repeats=repeats,
            timeout_s=120,
        )

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        graph = BY_NAME[str(cell.params["dataset"])]
        task = workload(graph, str(cell.params["model"]), context.preset)
        step = int(cell.params["step"])  # type: ignore[arg-type]
        switches = {name: i < step for i, name in enumerate(ORDER)}
        if cell.params.get("check"):
            return checked("pipad", task, context, switches=switches)
        return timed("pipad", task, context, switches=switches)

    def figures(self) -> list[FigureSpec]:
        return [
            FigureSpec(
                kind="ablation",
                name="ablation",
                title="Time of a training step, techniques added one by one",
                points=step_points,
                options={"system": "pipad"},
            )
        ]

    def answer(self, rows: Sequence[Any]) -> str:
        points = [p for p in step_points(rows) if p.get("gain")]
        if not points:
            return ""
        best = max(points, key=lambda p: p["gain"])
        return (
            f"The largest single step is {best['technique']}: {best['gain']:.2g}x "
            f"({best['panel']})."
        )


def step_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Seconds after each step, and the factor that the step brought."""
    mine = [r for r in rows if r.experiment == "ablation" and not r.params.get("check")]
    panels = dict.fromkeys((r.params["dataset"], r.params["model"]) for r in mine)
    points = []
    for dataset, model in panels:
        where = {"dataset": dataset, "model": model}
        for step in range(len(ORDER) + 1):
            found = [r for r in select(mine, step=step, **where) if r.time]
            twin = any(r.data.get("twin") for r in found)
            name = BY_NAME[dataset].title + (" (twin)" if twin else "")
            point = {
                "panel": f"{MODEL_TITLES[model]}, {name}",
                "step": step,
                "technique": ORDER[step - 1] if step else "",
                "exact": True,
                "row_ids": [r.id for r in found],
                "twin": twin,
            }
            if not found:
                bad = [r for r in mine if r.params.get("step") == step and r.status != "ok"]
                reason = f"{bad[0].status}: {bad[0].reason}" if bad else "skipped: not run"
                points.append({**point, "failed": reason})
                continue
            point["seconds"] = median(r.time for r in found)
            if step:
                gain = paired(mine, {"step": step - 1, **where}, {"step": step, **where})
                if gain is not None:
                    point |= {"gain": gain.value, "gain_low": gain.low, "gain_high": gain.high}
                    inside = gain.low is not None and gain.low <= 1 <= gain.high
                    point["same"] = inside
            points.append(point)
    return points
