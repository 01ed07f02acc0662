"""Table 2: fixed stale thresholds from nothing to 0.9 D (section 5.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from dgbench.lab.charts import sweep
from dgbench.lab.compare import select
from dgbench.lab.experiment import SPEED_PRESETS
from dgbench.lab.quality import Quality
from dgbench.systems.base import FigureSpec
from dgbench.systems.dgc.experiments.settings import BY_NAME
from dgbench.systems.dgc.experiments.stale_base import (
    COMMON_READING,
    HELD_NAMES,
    LOST,
    SAVED,
    SEEDED,
    TWIN_NAMES,
    WHOLE,
    StaleTable,
    graph_of,
    missing_points,
    of_held,
)
from dgbench.systems.dgc.experiments.stale_points import mean, over_seeds, points, qualities

THETAS = ("0.1D", "0.3D", "0.5D", "0.7D", "0.9D")
_ALL = ("without", *THETAS)


class Table2(StaleTable):
    name = "table2"
    presets = (*SPEED_PRESETS, "quality")
    title = "Table 2: fixed stale thresholds"
    claims = (
        "dgc-tab2-acc-amazon",
        "dgc-tab2-comm-amazon",
        "dgc-tab2-acc-epinion",
        "dgc-tab2-comm-epinion",
        "dgc-tab2-acc-movie",
        "dgc-tab2-comm-movie",
        "dgc-tab2-acc-stack",
        "dgc-tab2-comm-stack",
        "dgc-s52-stack-03d",
        "dgc-s52-movie-05d",
        "dgc-s52-theta-monotone",
    )
    question = "How do savings and accuracy move with the threshold?"
    reading = COMMON_READING + (
        " Table 2 does not name its model; its numbers come closest to DySAT, which is trained "
        "here. theta = 0 is the run that sends every row."
    )
    models: ClassVar = ("dysat",)
    settings: ClassVar = {
        "smoke": ("without", "0.5D"),
        "quick": _ALL,
        "full": _ALL,
        "paper": _ALL,
        "quality": _ALL,
    }
    graphs: ClassVar = {
        "smoke": (("wikipedia",),),
        "quick": (SEEDED, ("sx-mathoverflow", "amazon-magazine")),
        "full": (*((name,) for name in HELD_NAMES), TWIN_NAMES),
        "paper": (*((name,) for name in HELD_NAMES), *((name,) for name in TWIN_NAMES)),
        "quality": WHOLE,
    }

    seeded: ClassVar = {"quick": (SEEDED,)}

    def figures(self) -> list[FigureSpec]:
        return [
            sweep("table2", "Rows saved and accuracy lost by a fixed threshold, DySAT",
                sweep_points, xlabel="theta / D", ylabel="", xlog=False, ylog=False),
        ]  # fmt: skip

    def answer(self, rows: Sequence[Any]) -> str:
        found = select(rows, experiment=self.name)
        means = {t: mean(of_held(found, self.name, t)) for t in THETAS}
        words = [f"{t} {m.saved_rows:.0f} % for {m.drop:.2f}" for t, m in means.items() if m.runs]
        if not words:
            return ""
        text = (
            "Rows that DySAT saves on held graphs, and points of accuracy it loses, by threshold: "
            f"{', '.join(words)}."
        )
        judged = [
            f"{BY_NAME[dataset].title} at {setting}: {one}"
            for (dataset, _, setting), one in qualities(found).items()
            if one.word
        ]
        return f"{text} Accuracy over five seeds: {'; '.join(judged)}." if judged else text


def sweep_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Points of `sweep`: savings and losses by theta, a line for each graph."""
    found: list[dict[str, Any]] = []
    usable = select(rows, experiment="table2")
    runs = points(usable, where=lambda d, m, s: s in THETAS)
    judged = qualities(usable)
    for panel in (SAVED, LOST):
        for p in over_seeds(runs):
            found.append(
                {
                    "panel": panel,
                    "series": graph_of(p),
                    "x": float(p.setting.removesuffix("D")),
                    "y": p.saved_rows if panel == SAVED else p.drop,
                    "counted": panel == SAVED,
                    **({"low": p.low, "high": p.high} if panel == LOST else {}),
                    "row_ids": [run.row.id for run in p.parts],
                    **_below(judged.get((p.dataset, p.model, p.setting))),
                }
            )
    return found + missing_points(rows, "table2", SAVED)


def _below(judged: Quality | None) -> dict[str, str]:
    """Key of a point that is drawn hollow: its model is worse than a dictionary."""
    return {"below": judged.detail} if judged and judged.below else {}
