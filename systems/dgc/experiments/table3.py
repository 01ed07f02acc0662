"""Table 3: fixed and adaptive stale thresholds on every model and graph (section 7.3.3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from dgbench.systems.base import FigureSpec
from dgbench.systems.base.compare import select
from dgbench.systems.dgc.experiments.settings import MODELS
from dgbench.systems.dgc.experiments.stale_base import (
    COMMON_READING,
    HELD_NAMES,
    LOST,
    QUICK_HELD,
    SAVED,
    TWIN_NAMES,
    StaleTable,
    missing_points,
    of_held,
    said,
    trade_off,
)
from dgbench.systems.dgc.experiments.stale_runs import TITLES, mean

_ALL = ("without", "0.3D", "0.5D", "0.7D", "adaptive", "past")
_BAR_SAVED, _BAR_LOST = 75.0, 2.0


class Table3(StaleTable):
    name = "table3"
    title = "Table 3: stale aggregation on every model"
    question = "What do fixed and adaptive thresholds save, and what does accuracy lose?"
    reading = COMMON_READING + (
        " Beside the paper's columns stands an adaptive threshold whose D is the largest distance "
        "of all epochs so far; the paper's D of one epoch sends the farthest rows however little "
        "they moved. Means are over held graphs, as a twin may decide nothing here."
    )
    models: ClassVar = MODELS
    settings: ClassVar = {
        "smoke": ("without", "adaptive"),
        "quick": ("without", "adaptive", "past"),
        "full": _ALL,
        "paper": _ALL,
    }
    graphs: ClassVar = {
        "smoke": (("wikipedia",),),
        "quick": (QUICK_HELD,),
        "full": (*((name,) for name in HELD_NAMES), TWIN_NAMES),
        "paper": (*((name,) for name in HELD_NAMES), *((name,) for name in TWIN_NAMES)),
    }

    def figures(self) -> list[FigureSpec]:
        return [
            FigureSpec(
                kind="sweep",
                name="table3",
                title="Accuracy lost against rows saved, by threshold",
                points=lambda rows: trade_off(rows, self.name),
                options={
                    "xlabel": "rows saved (%)",
                    "ylabel": LOST,
                    "xlog": False,
                    "ylog": False,
                    "hline": _BAR_LOST,
                    "hline_label": "2 points",
                },
            ),
            FigureSpec(
                kind="sweep",
                name="table3_mean",
                title="Stale aggregation by threshold, mean over models and held graphs",
                points=mean_points,
                options={"xlabel": "threshold", "ylabel": "", "ylog": False},
            ),
        ]

    def answer(self, rows: Sequence[Any]) -> str:
        words = []
        found = select(rows, experiment=self.name)
        for setting in ("adaptive", "past"):
            text = said(found, self.name, setting)
            if not text:
                continue
            m = mean(of_held(found, self.name, setting))
            reached = m.saved_bytes >= _BAR_SAVED and m.drop <= _BAR_LOST
            subject = (
                "On held graphs the paper's rule"
                if setting == "adaptive"
                else "With D of all epochs so far it"
            )
            epochs = max(
                value
                for row in found
                for name, value in row.counters.items()
                if name.endswith(" epochs")
            )
            words.append(
                f"{subject} saves {text} (mean of {m.runs} runs of {epochs} epochs); 75 % of the "
                f"bytes at 2 points or less is {'reached' if reached else 'missed'}."
            )
        return " ".join(words)


def mean_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Points of `sweep`: means over held graphs by threshold, a panel for each quantity."""
    found: list[dict[str, Any]] = []
    for panel, series, of in (
        (SAVED, "rows", "saved_rows"),
        (SAVED, "bytes", "saved_bytes"),
        (LOST, "accuracy", "drop"),
    ):
        for setting in _ALL[1:]:
            m = mean(of_held(rows, "table3", setting))
            if m.runs:
                found.append(
                    {
                        "panel": panel,
                        "series": series,
                        "x": TITLES.get(setting, setting),
                        "y": getattr(m, of),
                        "runs": m.runs,
                        "row_ids": sorted({p.row.id for p in m.parts}),
                    }
                )
    return found + missing_points(rows, "table3", SAVED)
