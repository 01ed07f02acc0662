"""Numbers that the paper cites (sections 2.3, 2.4), and its own numbers against each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from dgbench.lab.charts import failures, gap, sweep
from dgbench.lab.grid import Grid
from dgbench.lab.printed import plain
from dgbench.lab.result_checks import ResultCheck, close
from dgbench.lab.table import number, rows_of
from dgbench.systems.base import Cell, FigureSpec, Measurement, RunContext
from dgbench.systems.tgcn.printed import table2, table3, values
from dgbench.systems.tgcn.settings import BY_NAME, SMALL_NAMES

NAME: Final = "cited"
SERIES: Final = "printed / derived"
NEAR: Final = 0.01
"""Relative difference up to which two numbers of three digits are the same."""


@dataclass(frozen=True, slots=True)
class Derived:
    """A printed number beside the one that follows from other printed numbers.

    Attributes:
        claim: whose number it is, without the paper's prefix.
        words: what it is.
        printed, follows: both numbers.
        unit: of both.
        by: what it follows from.
    """

    claim: str
    words: str
    printed: float
    follows: float
    unit: str
    by: str

    @property
    def agrees(self) -> bool:
        """True if both are the same to about three digits."""
        return abs(self.follows / self.printed - 1) <= NEAR


def twitter_edges() -> float:
    """Edges of Twitter as the running text has them."""
    return 1e9 * plain(values()["s1-twitter-edge-count"])


def derived() -> tuple[Derived, ...]:
    """All numbers of the text that can be formed from others."""
    of = values()
    gains = [table2("dygnn", "total")[name] / table2("tgcn", "total")[name] for name in SMALL_NAMES]
    mean = math.prod(gains) ** (1 / len(gains))
    spaces = [
        table3(baseline)[name] / table3("tgcn")[name]
        for baseline in ("dygnn", "jodie")
        for name in SMALL_NAMES
    ]
    shares = [
        100 * table2(system, "compute")[name] / total
        for system in ("dygnn", "tgcn")
        for name, total in table2(system, "total").items()
    ]
    twitter = BY_NAME["twitter"].printed
    seconds = table2("tgcn", "total")["twitter"]
    one_gpu = twitter.edges / seconds
    rates = [BY_NAME[n].printed.edges / table2("dygnn", "total")[n] for n in SMALL_NAMES]
    dygnn = plain(of["s62-throughput-dygnn"])
    nearest = min(rates, key=lambda rate: abs(math.log(rate / dygnn)))
    over, shown = of["fig6-vs-dygnn"], of["tab2-compute-share"]
    marius_s = 3600 * of["s24-marius-epoch-time"]
    return (
        Derived("s24-marius-throughput", "Marius, edges per second",
                plain(of["s24-marius-throughput"]), twitter_edges() / marius_s, "edges/s",
                f"{of['s1-twitter-edge-count']} billion edges, "
                f"{of['s24-marius-epoch-time']} hours"),
        Derived("fig6-vs-dygnn", "least gain over DyGNN", over["low"], min(gains), "x", "Table 2"),
        Derived("fig6-vs-dygnn", "largest gain over DyGNN", over["high"], max(gains), "x",
                "Table 2"),
        Derived("fig6-vs-dygnn", "mean gain over DyGNN", over["mean"], mean, "x", "Table 2"),
        Derived("s66-max-space-saving", "largest saving of memory", of["s66-max-space-saving"],
                max(spaces), "x", "Table 3"),
        Derived("tab2-compute-share", "least share of computing", shown["low"], min(shares), "%",
                "Table 2"),
        Derived("tab2-compute-share", "largest share of computing", shown["high"], max(shares), "%",
                "Table 2"),
        Derived("fig6-twitter-time", "seconds on Twitter", of["fig6-twitter-time"], seconds, "s",
                "Table 2"),
        Derived("s62-throughput-dygnn", "DyGNN, edges per second, nearest row", dygnn, nearest,
                "edges/s", "Tables 1 and 2"),
        Derived("s62-throughput-tgcn", "T-GCN, edges per second, eight GPUs",
                plain(of["s62-throughput-tgcn"]), of["fig10-8gpu"]["mean"] * one_gpu, "edges/s",
                f"Tables 1 and 2, {of['fig10-8gpu']['mean']}x for eight GPUs"),
        Derived("s1-twitter-edge-count", "billion edges of Twitter", of["s1-twitter-edge-count"],
                twitter.edges / 1e9, "billion edges", "Table 1"),
    )  # fmt: skip


def checked_numbers() -> list[ResultCheck]:
    """Checks of derived numbers by other arithmetic."""
    ratio = np.array([
        [table2("dygnn", "total")[n] / table2("tgcn", "total")[n] for n in SMALL_NAMES],
        [table3("dygnn")[n] / table3("tgcn")[n] for n in SMALL_NAMES],
        [table3("jodie")[n] / table3("tgcn")[n] for n in SMALL_NAMES],
    ])  # fmt: skip
    said = [values()[name] for name in ("s1-twitter-edge-count", "s24-marius-epoch-time")]
    wanted = {
        "Marius, edges per second": 1e9 * said[0] / (said[1] * 60 * 60),
        "least gain over DyGNN": ratio[0].min(),
        "largest gain over DyGNN": ratio[0].max(),
        "mean gain over DyGNN": np.exp(np.log(ratio[0]).mean()),
        "largest saving of memory": ratio[1:].max(),
    }
    own = {one.words: one.follows for one in derived() if one.words in wanted}
    return [close("values", own, wanted, 1e-9, against="the same printed numbers")]


class Cited(Grid):
    paper = "tgcn"
    name = NAME
    title = "What is quoted, and the paper's numbers against each other"
    device = "cpu"
    question = "Do the numbers that the paper quotes and prints agree with each other?"
    reading = (
        "Results of other works are quoted without their settings and are not run again here. "
        "Where two or more printed numbers give a third, we form it; nothing is measured."
    )
    claims = (
        "tgcn-s2-graphsaint-over-clustergcn",
        "tgcn-s24-dglke-gpu-utilisation",
        "tgcn-s24-pbg-gpu-utilisation",
        "tgcn-s24-marius-epoch-time",
        "tgcn-s24-marius-throughput",
    )
    axes: ClassVar = {"what": ("arithmetic",)}
    group = NAME

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        found = Measurement(
            data={"dataset": "none", "twin": False, "scale": 1.0, "note": "printed numbers only"}
        )
        for one in derived():
            found.observe("estimate", one.follows, of=one.words)
        found.checks = checked_numbers()
        microseconds = 1e6 * 3600 * values()["s1-brs-twitter-time"] / twitter_edges()
        found.observe("estimate", microseconds, of="BRS on Twitter, us a draw")
        return found

    def figures(self) -> list[FigureSpec]:
        return [
            sweep(NAME, "Printed numbers over what follows from other printed numbers", points,
                xlabel="", ylabel=SERIES, ylog=False, sort=False, hline=1.0, hline_label="agree"),
        ]  # fmt: skip

    def answer(self, rows: Sequence[Any]) -> str:
        if not rows_of(rows, experiment=NAME):
            return ""
        all_of = derived()
        apart = [one for one in all_of if not one.agrees]
        return (
            f"{len(all_of) - len(apart)} of {len(all_of)} agree. Not: "
            + "; ".join(f"{o.words}, {o.printed:g} and {o.follows:.3g} ({o.by})" for o in apart)
            + "."
        )


def points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Points of `sweep`: every printed number over the derived one."""
    return [
        {
            "series": SERIES,
            "x": one.words,
            "y": one.printed / number(row, "estimate", of=one.words),
            "counted": True,
            "row_ids": [row.id],
        }
        for row in rows_of(rows, experiment=NAME)
        for one in derived()
    ] + [gap(row, series=SERIES, x=derived()[0].words) for row in failures(rows, NAME)]
