"""Figure 14: the dynamic cache against static ones chosen by sampling ahead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final

from dgbench.lab.charts import failed, failures, mark, ratio_mark
from dgbench.lab.compare import ROUND_INTERVAL, Ratio, by_group, ratio_of
from dgbench.lab.grid import Grid
from dgbench.lab.result_checks import ResultCheck, of_contender
from dgbench.lab.table import Table, number, rows_of
from dgbench.systems.base import Cell, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.base.turns import turn_rounds
from dgbench.systems.gnnflow.cache import CacheCounts
from dgbench.systems.gnnflow.experiments import cache_play as play
from dgbench.systems.gnnflow.experiments.cache_checks import (
    counts_check,
    few,
    looped_dynamic,
    looped_static,
    requests_check,
)
from dgbench.systems.gnnflow.experiments.cache_times import CONTENDERS, time_rounds
from dgbench.systems.gnnflow.experiments.sample_checks import by_subject
from dgbench.systems.gnnflow.experiments.settings import BY_NAME, LAMBDA, model_title, panel

NETFLIX: Final = ("netflix", "tgn")
"""The workload of panels b to d."""
HITS: Final = {
    "smoke": (NETFLIX, ("college-msg", "tgn")),
    "quick": (NETFLIX, ("wikipedia", "tgn"), ("sx-mathoverflow", "tgn"), ("wikipedia", "tgat")),
    "full": (
        NETFLIX, ("gdelt", "tgn"), ("netflix", "tgat"), ("gdelt", "tgat"),
        ("wikipedia", "tgn"), ("sx-mathoverflow", "tgn"), ("enron", "tgn"), ("college-msg", "tgn"),
        ("email-eu-core", "tgn"), ("wikipedia", "tgat"), ("sx-mathoverflow", "tgat"),
    ),
    "paper": (NETFLIX, ("gdelt", "tgn"), ("netflix", "tgat"), ("gdelt", "tgat")),
}  # fmt: skip
TIMES: Final = {
    "smoke": (NETFLIX,),
    "quick": (NETFLIX, ("wikipedia", "tgat")),
    "full": (NETFLIX, ("gdelt", "tgn"), ("wikipedia", "tgn"), ("wikipedia", "tgat")),
    "paper": (NETFLIX, ("gdelt", "tgn")),
}
SIZES: Final = (0.25, 1.0, 4.0)
"""Capacities in multiples of the paper's 3 % of the nodes and 3 per mille of the edges."""
ROUNDS: Final = {"smoke": 2, "quick": 8, "full": 40, "paper": 40}
MAX_ROUND_EVENTS: Final = {"smoke": 400, "quick": 400, "full": 40_000, "paper": 10**9}
"""Events of a round at most, the first ones."""
VARIANTS: Final = {
    "dynamic": "GNNFlow",
    "dynamic without RR": "GNNFlow without RR",
    "static": "GNNLab",
    "static with reuse": "GNNLab with reuse",
    "static stale": "GNNLab with reuse, between choices",
}
"""RR: reuse from round to round, and restoration for every epoch."""


class Fig14(Grid):
    paper = "gnnflow"
    name = "fig14"
    title = "Figure 14: dynamic and static caches"
    device = "cpu"
    question = "Does a cache that follows the stream hit more, and fetch faster, than a static one?"
    reading = (
        "GNNLab's cache is chosen before each round from two epochs sampled ahead, with reuse "
        "before every second one; the rounds between are shown apart. A hit rate is over all "
        "requests, repeated ones of a batch included; rows hold it per different id, too. On a "
        "smaller graph batches are smaller in proportion, so that a cache of the printed share "
        "holds as many batches as on Netflix; one of eight GPUs is played. Negatives are drawn "
        "anew in every epoch, so sampling ahead does not know them. Times are of rounds of four "
        "batches with rows of full width: on a CPU hits and misses cost the same, so they show "
        "what choosing ahead costs, and bytes that missed stand beside them. Panel a does not "
        "name its two workloads."
    )
    claims = (
        "gnnflow-fig14a-fetch-vs-gnnlab",
        "gnnflow-fig14b-init-share",
        "gnnflow-fig14cd-rr-gain",
        "gnnflow-fig14d-static-edge-zero",
        "gnnflow-fig14d-static-edge-below-dynamic",
        "gnnflow-s22-cache-init-share",
    )

    control: ClassVar[Any] = {"part": "times", "dataset": NETFLIX[0], "model": NETFLIX[1]}
    group = "{part} {dataset} {model}"
    timeout_s: ClassVar[Any] = {"paper": 3600, None: 600}

    def points(self, preset: Preset, device: str) -> Iterable[dict[str, Any]]:
        for part, workloads in (("hits", HITS[preset]), ("times", TIMES[preset])):
            for dataset, model in workloads:
                yield {"part": part, "dataset": dataset, "model": model}

    def cell(self, params: Mapping[str, Any], preset: Preset, **fields: Any) -> Cell:
        if params["part"] == "times":
            fields |= {"repeats": turn_rounds(preset), "interleaved": True}
        return super().cell(params, preset, **fields)

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        graph = BY_NAME[str(cell.params["dataset"])]
        model = str(cell.params["model"])
        if cell.params["part"] == "times":
            return time_rounds(graph, model, context, control=self.controls(cell))
        preset = context.preset
        played = play.record(graph, model, preset, ROUNDS[preset], MAX_ROUND_EVENTS[preset])
        found = Measurement(data=played.accesses.describe())
        found.checks += played.accesses.checks()
        for kind in play.KINDS:
            for times in SIZES:
                found.checks += hit_checks(played, kind, times)
                for variant, counts in hits(played, kind, times).items():
                    name = f"{kind} {variant} {times:g}"
                    if variant != "static stale":
                        asked = counts.requests
                        check = requests_check(asked, played.counted(), kind, name)
                        found.checks += of_contender(variant, [check], of=kind)
                    which = {"of": kind, "setting": variant, "capacity": times}
                    play.observe_counts(found, counts, **which)
                    found.observe("requests", counts.requests, **which)
            found.observe("slots", played.accesses.capacity(kind), of=kind)
        found.checks = by_subject(found.checks)
        found.observe("batch_size", played.accesses.task.batch)
        found.observe("events", sum(one.events for one in played.rounds[play.WARM :]))
        return found

    def figures(self) -> list[FigureSpec]:
        hit_options = {
            "xlabel": "capacity, in the paper's shares",
            "ylabel": "requests that hit, %",
            "ylog": False,
            "names": False,
        }
        return [
            FigureSpec(
                kind="speedup",
                name="fig14a",
                title="Fetching of a round against GNNLab's cache (Figure 14a)",
                points=gain_points,
                options={"xlabel": "time with GNNLab's cache / time with GNNFlow's",
                         "interval": ROUND_INTERVAL, "baseline_label": "GNNLab's cache"},
            ),
            FigureSpec(
                kind="sweep",
                name="fig14b",
                title="Choosing what to cache, in percent of the fetching (Figure 14b)",
                points=share_points,
                options={"ylabel": "choosing, % of all fetching", "ylog": False, "sort": False},
            ),
            FigureSpec(
                kind="sweep",
                name="fig14c",
                title="Hit rate of node features (Figure 14c)",
                points=lambda rows: hit_points(rows, "node"),
                options=hit_options,
            ),
            FigureSpec(
                kind="sweep",
                name="fig14d",
                title="Hit rate of edge features (Figure 14d)",
                points=lambda rows: hit_points(rows, "edge"),
                options=hit_options,
            ),
        ]  # fmt: skip

    def answer(self, rows: Sequence[Any]) -> str:
        found = rows_of(rows, experiment="fig14", part="hits")
        if not found:
            return ""
        parts = []
        for kind in play.KINDS:
            gains = [hit_rate(row, kind, "dynamic") - hit_rate(row, kind, "static")
                     for row in found]  # fmt: skip
            parts.append(f"{min(gains):+.0f} to {max(gains):+.0f} points for {kind}s")
        return (
            f"Against a static cache that is chosen anew every round, hits change by "
            f"{' and '.join(parts)}, on {len(found)} workloads."
        )


def hit_rate(row: Any, kind: str, variant: str, times: float = 1.0) -> float:
    """Requests that one of `VARIANTS` answers, in percent."""
    which = {"of": kind, "setting": variant, "capacity": times}
    return 100 * number(row, "hit_rate", statistic=None, **which)


def speedup(rows: Sequence[Any]) -> Ratio:
    """Time of a round's fetching with GNNLab's cache over that with GNNFlow's."""
    return ratio_of(Table.of(rows).where("speedup", baseline="static"))


def init_shares(row: Any) -> dict[str, float]:
    """Choosing ahead in percent of all fetching, by variant."""
    shares = Table.of([row]).where("time_share", phase="init").numbers("setting")
    return {variant: 100 * share for variant, share in shares.items()}


def hits(played: play.Played, kind: str, times: float) -> dict[str, CacheCounts]:
    """Hits of each of `VARIANTS` over the counted rounds."""
    found: dict[str, CacheCounts] = {}
    for name, on in (("dynamic", True), ("dynamic without RR", False)):
        cache = play.narrow(played, kind, times)
        found[name] = play.dynamic(played, cache, kind, reuse=on, restoration=on)
    cache = play.narrow(played, kind, times, "static")
    found["static"], _ = play.static(played, cache, kind)
    cache = play.narrow(played, kind, times, "static")
    found["static with reuse"], found["static stale"] = play.static(played, cache, kind, every=2)
    return found


def hit_checks(played: play.Played, kind: str, times: float) -> list[ResultCheck]:
    """Checks of `hits` over a few ids of the rounds, request by request."""
    some, capacity = few(played), played.accesses.capacity(kind, times)
    wanted = {
        "dynamic": looped_dynamic(some, kind, capacity, play.WARM, admission=LAMBDA),
        "dynamic without RR": looped_dynamic(
            some, kind, capacity, play.WARM, admission=LAMBDA, reuse=False, restoration=False
        ),
        "static": looped_static(some, kind, capacity, play.WARM, 1),
        "static with reuse": looped_static(some, kind, capacity, play.WARM, 2),
    }
    found = hits(some, kind, times)
    return [
        counts_check(found[name], counts, f"{kind} {name} {times:g}")
        for name, counts in wanted.items()
    ]


def hit_points(rows: Sequence[Any], kind: str) -> list[dict[str, Any]]:
    """Hit rates by capacity."""
    made = [
        mark(
            row, panel=_title(row), series=title, x=times, counted=True,
            y=hit_rate(row, kind, variant, times),
        )
        for row in rows_of(rows, experiment="fig14", part="hits")
        for variant, title in VARIANTS.items()
        for times in SIZES
    ]  # fmt: skip
    for row in _failed(rows, "hits"):
        made.append({"panel": panel(row), "series": "GNNFlow", "x": 1.0, "failed": failed(row)})
    return made


def _title(row: Any) -> str:
    return f"{model_title(row)}, {panel(row)}"


def gain_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Time with GNNLab's cache over that with GNNFlow's."""
    sides = {"system": "gnnflow", "baseline": "GNNLab's cache"}
    timed = by_group(rows_of(rows, experiment="fig14", part="times"))
    made = [ratio_mark(speedup(mine), row=_title(mine[0]), **sides) for mine in timed.values()]
    return made + [
        {"row": _title(row), **sides, "failed": failed(row)} for row in _failed(rows, "times")
    ]


def share_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Choosing and filling in percent of all fetching, with the printed ones beside."""
    made: list[dict[str, Any]] = []
    printed = {"static": 90.0, "static with reuse": 80.0}
    for mine in by_group(rows_of(rows, experiment="fig14", part="times")).values():
        every, row = [init_shares(one) for one in mine], mine[-1]
        for variant in CONTENDERS:
            share = sum(shares[variant] for shares in every) / len(every)
            where = {"panel": _title(row), "x": VARIANTS[variant]}
            made.append(mark(row, **where, series="measured", y=share))
            if variant in printed and (row.params["dataset"], row.params["model"]) == NETFLIX:
                made.append({**where, "series": "printed", "y": printed[variant], "paper": True})
    for row in _failed(rows, "times"):
        made.append({"panel": panel(row), "series": "measured", "x": "GNNLab",
                     "failed": failed(row)})  # fmt: skip
    return made


def _failed(rows: Sequence[Any], part: str) -> list[Any]:
    return [row for row in failures(rows, "fig14") if row.params["part"] == part]
