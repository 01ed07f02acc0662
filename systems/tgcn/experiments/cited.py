"""Numbers that the paper cites (sections 2.3, 2.4), and its own numbers against each other."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from operator import truediv
from typing import Any, NamedTuple

import numpy as np

from dgbench.lab import outcomes, rules
from dgbench.lab.estimates import EvaluationContext
from dgbench.lab.figure_forms import Sweep
from dgbench.lab.printed import plain
from dgbench.lab.quantities import computed, observed
from dgbench.lab.result_checks import ResultCheck, close
from dgbench.lab.study import FormExperiment
from dgbench.systems.base import Cell, Measurement, RunContext
from dgbench.systems.tgcn.settings import BY_NAME, FORMS, SMALL_NAMES, table2, table3, values

NEAR = 0.01
"""Relative difference up to which two numbers of three digits are the same."""


MARIUS = "Marius, edges per second"


class Derived(NamedTuple):
    """A printed number beside the one that follows from other printed numbers."""

    words: str
    printed: float
    follows: float


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
    eight = of["fig10-8gpu"]["mean"]
    return (
        Derived(MARIUS, plain(of["s24-marius-throughput"]), twitter_edges() / marius_s),
        Derived("least gain over DyGNN", over["low"], min(gains)),
        Derived("largest gain over DyGNN", over["high"], max(gains)),
        Derived("mean gain over DyGNN", over["mean"], mean),
        Derived("largest saving of memory", of["s66-max-space-saving"], max(spaces)),
        Derived("least share of computing", shown["low"], min(shares)),
        Derived("largest share of computing", shown["high"], max(shares)),
        Derived("seconds on Twitter", of["fig6-twitter-time"], seconds),
        Derived("DyGNN, edges per second, nearest row", dygnn, nearest),
        Derived("T-GCN, edges per second, eight GPUs", plain(of["s62-throughput-tgcn"]),
                eight * one_gpu),
        Derived("billion edges of Twitter", of["s1-twitter-edge-count"], twitter.edges / 1e9),
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
        MARIUS: 1e9 * said[0] / (said[1] * 60 * 60),
        "least gain over DyGNN": ratio[0].min(),
        "largest gain over DyGNN": ratio[0].max(),
        "mean gain over DyGNN": np.exp(np.log(ratio[0]).mean()),
        "largest saving of memory": ratio[1:].max(),
    }
    own = {one.words: one.follows for one in derived() if one.words in wanted}
    return [close("values", own, wanted, 1e-9, against="the same printed numbers")]


ESTIMATE = observed("estimate", per="of")


def agreements(context: EvaluationContext) -> Iterator[tuple[Mapping[str, Any], Any]]:
    """Every printed number over the one that follows from others."""
    follows = {dict(at)["of"]: one for at, one in ESTIMATE.estimates(context).items()}
    for one in derived():
        if one.words in follows:
            ratio = follows[one.words].mapped(partial(truediv, one.printed))
            yield {"of": one.words}, ratio


def quoted(needs: str) -> outcomes.Rule:
    """A result of another work, which is not run again here."""
    return rules.not_measurable(
        f"a quoted result of another work, without its settings; needs {needs}"
    )


AGREEMENT = computed(agreements, per=("of",))


class Cited(FormExperiment):
    forms, name = FORMS, "cited"
    device = "cpu"
    axes = {"what": ("arithmetic",)}
    group = "cited"
    headline = AGREEMENT
    figure_forms = (
        Sweep(
            "cited", "Printed numbers over what follows from other printed numbers", AGREEMENT,
            series="printed / derived", x="of", gaps={"x": MARIUS},
            more=lambda *_: {"counted": True}, xlabel="", ylabel="printed / derived", ylog=False,
            sort=False, hline=1.0, hline_label="agree",
        ),
    )  # fmt: skip
    claims = {
        "tgcn-s2-graphsaint-over-clustergcn": quoted(
            "GraphSAINT and ClusterGCN on a static graph with labels"
        ),
        "tgcn-s24-dglke-gpu-utilisation": quoted("DGL-KE and a GPU"),
        "tgcn-s24-pbg-gpu-utilisation": quoted("PyTorch-BigGraph and a GPU"),
        "tgcn-s24-marius-epoch-time": quoted("Marius, a GPU and the Twitter graph"),
        "tgcn-s24-marius-throughput": rules.all_equal(
            ESTIMATE.where(of=MARIUS), lambda value, at: plain(value), within=NEAR
        ),
    }

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
