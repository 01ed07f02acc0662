"""Claims of GNNFlow: rows that decide what kept and synthetic rows leave open, and their verdicts.

A case has one made row, or one change of a measured one, for each conjunct of a check's rule.
`tests/golden/gnnflow` has what kept rows decide, here are the other verdicts of these claims.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import product
from typing import Any

import pytest
from gnnflow_rows import by, changed, judged, row
from msgspec.structs import replace

from dgbench.harness.claims.ledger import load_ledger
from dgbench.harness.store.row import Row
from dgbench.lab.table import observation
from dgbench.systems.base import Cell, Measurement, RunContext
from dgbench.systems.gnnflow import PAPER
from dgbench.systems.gnnflow import experiments as ex
from dgbench.systems.gnnflow.experiments.settings import BY_NAME, DATASET_OF

TWIN = {"twin": True, "scale": 1.0}
CONTEXT = RunContext("cpu", "smoke", 1)
CLAIMS = {claim.id: claim for claim in load_ledger(PAPER.ledger)}
Rows = list[Row]
Case = tuple[Any, ...]
"""A claim, its rows, words of its verdict, and a floor if it has one."""

# --- accuracy -------------------------------------------------------------------------------------

WAVE = (0.01, -0.01, 0.02, -0.02, 0.0, 0.01, -0.01, 0.0)
GAPS = (0.02, 0.03, 0.04, 0.05, 0.01, 0.02, 0.03, 0.03)


def epochs_row(
    model: str, seed: int, means: Sequence[float], times: Sequence[float] = (1.0, 2.0, 3.0, 4.0)
) -> Row:
    measured = Measurement()
    for epochs, mean, seconds in zip(ex.fig10.EPOCHS, means, times, strict=True):
        shift = 0.001 * math.sin(5 * seed * epochs)
        for k, wave in enumerate(WAVE):
            value = mean + wave + shift
            measured.observe("average_precision", value, round=k, epochs_per_round=epochs)
        measured.observe("round_time", seconds, epochs_per_round=epochs)
    measured.observe("rounds", 8)
    params = {"dataset": "wikipedia", "model": model, "seed": seed}
    return row("fig10", params, measured, id=f"{model}{seed}")


def schedule_row(
    model: str, seed: int, gaps: Sequence[float] = GAPS, noise: float = 0.002,
    replay: Sequence[float] = (0.01, 0.02), budget: float = 1.0,
) -> Row:  # fmt: skip
    often = [0.9 + wave for wave in WAVE]
    shifts = [noise * math.sin(5 * seed + 3 * k * seed) for k in range(8)]
    curves = {
        ex.fig11.OFTEN: often,
        ex.fig11.SELDOM: [a - b - c for a, b, c in zip(often, gaps, shifts, strict=True)],
        ex.fig11.NEVER: [a - 0.05 for a in often],
    }
    for ratio, more in zip(ex.fig11.RATIOS, replay, strict=True):
        curves[ex.fig11.replayed(ratio)] = [a + more + 0.002 * (-1) ** seed * ratio for a in often]
    measured = Measurement()
    for setting, curve in curves.items():
        for k, value in enumerate(curve):
            measured.observe("average_precision", value, round=k, setting=setting)
    measured.observe(
        "speedup", budget * (1 + 0.001 * seed), setting=ex.fig11.OFTEN, baseline=ex.fig11.SELDOM
    )
    measured.observe("rounds", 8)
    measured.observe("rounds", 4, of="between retrainings")
    measured.observe("events", 100, of="round")
    params = {"dataset": "wikipedia", "model": model, "seed": seed}
    return row("fig11", params, measured, id=f"{model}{seed}")


def seeds(make: Callable[..., Row], *args: Any, **how: Any) -> Rows:
    return [make(m, seed, *args, **how) for m in ("tgn", "tgat") for seed in range(1, 6)]


def ahead() -> Rows:
    return seeds(schedule_row)


def behind() -> Rows:
    return seeds(schedule_row, [-gap for gap in GAPS], replay=(-0.01, -0.02), budget=2.0)


FALLING, DIMINISHING = (0.80, 0.84, 0.86, 0.84), (0.80, 0.84, 0.86, 0.865)
ACCURACY: list[Case] = [
    ("fig10-diminishing", lambda: seeds(epochs_row, DIMINISHING), "value weak"),
    ("fig10-diminishing", lambda: seeds(epochs_row, (0.80, 0.81, 0.83, 0.90)), "opposite"),
    ("fig10-diminishing", lambda: seeds(epochs_row, DIMINISHING, (1.0, 1.1, 1.2, 1.3)),
     "opposite"),
    ("fig10-drop-3-to-4", lambda: seeds(epochs_row, FALLING), "value"),
    ("fig10-sweet-spot", lambda: seeds(epochs_row, FALLING), "value"),
    ("s1-epochs-per-round", lambda: seeds(epochs_row, FALLING), "value strong"),
    ("fig11-accuracy-gap", ahead, "direction"), ("fig11-accuracy-gap", behind, "opposite"),
    ("fig11-always-ahead", ahead, "value"), ("fig11-replay", behind, "opposite"),
    ("fig11-tgl-jump", ahead, "value"), ("fig11-tgl-jump", behind, "opposite"),
    ("s61-equal-budget", ahead, "value"),
    ("s61-equal-budget", lambda: seeds(schedule_row, [0.0] * 8, 0.02, (0.0, 0.0)), "value"),
]  # fmt: skip

# --- continuous training --------------------------------------------------------------------------


def race(
    dataset: str, model: str, gain: float, share: float = 0.3, form: str = ex.round_race.PUBLISHED,
    ours: float | None = None,
) -> Row:  # fmt: skip
    """A race of rounds; `ours` is the gain of GNNFlow + dgbench in it."""
    gains = {form: gain} | ({} if ours is None else {ex.round_race.GNNFLOW: ours})
    observed = [observation("turns", 6)]
    observed += by("round_time", "setting", dict.fromkeys(gains, 4e-3) | {"tgl": gain * 4e-3})
    observed.append(observation("time_share", share, setting="tgl", phase="update"))
    for name, factor in gains.items():
        which = {"setting": name, "baseline": "tgl"}
        ends = {"low": factor * 0.9, "high": factor * 1.1}
        observed.append(observation("speedup", factor, **ends, **which))
        observed.append(observation("speedup", 3.0, phase="without network", **which))
    params = {"dataset": dataset, "model": model}
    return row("fig8", params, observed, deviation={"loss": 0.0}, data=TWIN | {"scale": 1 / 1024})


def races(gains: Mapping[str, float], **more: float) -> Rows:
    """Races on GDELT by model, and on Netflix."""
    result = [race("gdelt", model, gain) for model, gain in gains.items()]
    return result + [race("netflix", model, gain) for model, gain in more.items()]


def update(dataset: str, update_s: float, rebuild_s: float, size: float) -> Row:
    observed = [
        *by("operation_time", "setting", {"update": update_s, "rebuild": rebuild_s}),
        observation("estimate", size, of="events"),
        observation("speedup", rebuild_s / update_s, setting="update", baseline="rebuild"),
        observation("threads", 2),
    ]
    return row("update", {"dataset": dataset}, observed, data=TWIN | {"scale": 1 / 64})


def parts(fetching: Mapping[str, float]) -> Rows:
    return [
        row("fig9", {"dataset": "gdelt", "model": model}, [
            observation("speedup", value, low=value * 0.9, high=value * 1.1, phase=phase,
                        setting=ex.round_race.PUBLISHED, baseline="tgl")
            for phase, value in (("sampling", 4.0), ("fetching", gain))
        ], data=TWIN)
        for model, gain in fetching.items()
    ]  # fmt: skip


ALL_THREE = {"tgn": 2.0, "tgat": 1.5, "dysat": 1.6}
TWO = {"tgn": 2.0, "tgat": 1.5}
UPDATES = (("gdelt", 0.001, 0.5, 1500.0), ("netflix", 0.002, 0.25, 2031.25))
SLOWER = {"tgn": 0.5, "tgat": 0.8, "dysat": 0.7}
ROUNDS: list[Case] = [
    ("fig8-gdelt", lambda: races(ALL_THREE), "direction timed twin"),
    ("fig8-netflix", lambda: races(TWO, tgn=0.5), "opposite"),
    ("abs-max-retrain-speedup", lambda: races(TWO), "direction"),
    ("abs-max-retrain-speedup", lambda: races(TWO | {"tgat": 0.5}), "v"),
    ("s61-tgl-rebuild-share", lambda: [race("gdelt", "tgn", 2.0, 0.4),
                                       race("gdelt", "tgat", 2.0, 0.9),  # not raced on Netflix
                                       race("netflix", "tgn", 2.0, 0.7)], "value"),
    ("s61-rebuild-dominates", lambda: [race("gdelt", "tgn", 2.0, 0.6),
                                       race("netflix", "tgn", 2.0, 0.7)], "value"),
    ("s61-update-time", lambda: [update("gdelt", 0.002, 0.5, 1500.0),
                                 update("netflix", 0.001, 0.25, 2031.25)], "opposite"),
    ("s61-update-time", lambda: [update(*one) for one in UPDATES], "undecided", 1.5),
    ("fig9-sampling", lambda: parts(SLOWER), "direction"),
    ("fig9-feature-fetch", lambda: parts(SLOWER), "opposite"),
    ("fig9-feature-fetch", lambda: parts(SLOWER | {"tgn": 2.0}), "v"),
]  # fmt: skip

# --- caches ---------------------------------------------------------------------------------------


def hits(dataset: str, dynamic: float) -> Row:
    rates = {"static": 0.2, "static with reuse": 0.15, "static stale": 0.05}
    observed = by("hit_rate", "setting", rates, of="edge", capacity=1.0)
    for of, times in product(("node", "edge"), ex.fig14.SIZES):
        both = {"dynamic": dynamic, "dynamic without RR": 0.1}
        observed += by("hit_rate", "setting", both, of=of, capacity=times)
    return row("fig14", {"dataset": dataset, "part": "hits", "model": "tgn"}, observed)


def law(dataset: str, node: float, edge: float, *, twin: bool = False) -> Row:
    observed = [
        observation("likelihood_z", z, model=model, task="link", of=kind, setting="upper half")
        for model in ("tgat", "tgn")
        for kind, z in (("node", node), ("edge", edge))
    ]
    return row("fig5", {"dataset": dataset}, observed, data={"twin": twin, "scale": 1.0})


CACHES: list[Case] = [
    ("fig14d-static-edge-below-dynamic", lambda: [hits("wikipedia", 0.3)], "value weak"),
    ("fig14cd-rr-gain", lambda: [hits("wikipedia", 0.3)], "value"),
    ("fig14cd-rr-gain", lambda: [changed(
        hits("wikipedia", 0.3), "hit_rate", 0.1, of="edge", setting="dynamic",
        capacity=ex.fig14.SIZES[-1])], "opposite"),
    ("fig5-other-workloads", lambda: [law("reddit", -9.0, 9.0, twin=True),
                                      law("wikipedia", 9.0, -9.0)], "value"),
    ("fig5-other-workloads", lambda: [law("wikipedia", 0.5, -9.0)], "undecided"),
    ("fig5-node-access-powerlaw", lambda: [law("reddit", 9.0, -9.0, twin=True)], "-"),
    ("fig5-node-access-powerlaw", lambda: [law("wikipedia", 9.0, -9.0),
                                           law("sx-mathoverflow", -9.0, 9.0)], "opposite"),
]  # fmt: skip

# --- ranks and clusters ---------------------------------------------------------------------------


def projected(**leads: float) -> Rows:
    return [
        row(
            "fig15", {"dataset": "gdelt", "model": model, "ranks": 1},
            [one for reading, ranks in product(ex.fig15.READINGS, ex.fig15.PROJECTED) for one in by(
                "projected_throughput", "setting",
                {n: ranks * (lead if n == ex.fig15.OURS else 1.0) for n in ex.fig15.CONTENDERS},
                scaled_by=reading, ranks=ranks,
            )],
            data=TWIN | {"scale": 0.1},
        )
        for model, lead in leads.items()
    ]  # fmt: skip


def balance() -> Rows:
    """Records and vertices of machines: the hash is more even than METIS."""
    excess = {"records": (0.01, 3.0, 0.4), "vertices": (1e-4, 3.0, 0.4)}
    observed = [
        one for of, each in excess.items() for one in by(
            "excess", "setting", dict(zip(("hash", "strided", "metis"), each, strict=True)), of=of,
            machines=4,
        )
    ]  # fmt: skip
    return [row("partition", {"dataset": "wikipedia"}, observed)]


def builds(*gains: float) -> Rows:
    result, which = [], {"setting": "GNNFlow", "baseline": "DistDGL", "phase": "build"}
    for turn, gain in enumerate(gains):
        times = {"GNNFlow": 1.0, "DistDGL": gain}
        observed = [
            *by("preparation_time", "setting", times, phase="build"),
            observation("speedup", gain, **which), observation("events", 100),
            observation("throughput", 1e6, of="edges"),
        ]  # fmt: skip
        params = {"kind": "build", "dataset": "mag"}
        result.append(row("table7", params, observed, id=f"build{turn}", round=turn, group="build"))
    return result


def memory(tau_16: float = 101.6e9) -> Rows:
    edges = {tau: 1e9 * (100 + tau / 10) for tau in ex.large.TAUS}
    observed = [
        *by("estimate", "tau", edges | {4096: 510e9, 16: tau_16}, of="edge"),
        *by("estimate", "tau", dict.fromkeys(ex.large.TAUS, 2e9), of="metadata"),
        observation("estimate", 210e9, of="edge", setting="at both ends"),
        *by("memory", "of", {"memories": int(140e9), "rebuild": int(250e9)}),
    ]
    return [row("large", {"kind": "memory", "dataset": "ldbc"}, observed, data={"twin": True})]


def trained(rate: float) -> Rows:
    observed = by("projected_throughput", "scaled_by", {"bandwidth": rate, "arithmetic": 2 * rate})
    observed.append(observation("throughput", 1e4))
    return [row("large", {"kind": "train", "dataset": "ldbc"}, observed)]


RANKS: list[Case] = [
    ("fig15-best-throughput", lambda: projected(tgn=2.0, tgat=1.5), "value projected", 0.2),
    ("s64-ldbc-throughput", lambda: trained(4e5), "value"),
    ("s64-ldbc-throughput", lambda: trained(1e5), "opposite"),
    ("s44-hash-balance", balance, "value"),
    ("tab7-graph-building", lambda: builds(5.0, 5.2, 4.9, 5.1, 5.0), "direction timed"),
    ("tab7-graph-building", lambda: builds(0.3, 104.0, 1.0, 0.9, 2.0), "undecided"),
    ("tab7-graph-building", lambda: builds(0.5, 0.51, 0.52, 0.53, 0.54), "opposite"),
    ("s64-ldbc-metadata", memory, "value"),
    ("s1-five-billion-edges", memory, "value weak"),
    ("s1-five-billion-edges", lambda: memory(tau_16=4e12), "opposite"),
]  # fmt: skip

# --- placements -----------------------------------------------------------------------------------


def placed(name: str, limit: int = 4 << 30, ballast: int = 1 << 30, **seconds: float | str) -> Rows:
    """Five rounds of each placement; words instead of seconds are a status."""
    published = {"reddit": 1_344_894, "gdelt": 191_290_000, "netflix": 200_960_000}[name]
    result = []
    for (system, took), turn in product(seconds.items(), range(5)):
        observed = [observation("records", published, of="published")]
        observed += by("memory", "of", {"limit": limit, "ballast": ballast})
        status = took if isinstance(took, str) else "ok"
        if status == "ok":
            time = took * (1 + 0.01 * turn)
            observed.append(observation("step_time", time, samples=[time]))
        params, id_ = {"dataset": name, "system": system}, f"{name}-{system}-{turn}"
        where = {"group": name, "round": turn, "device": "cuda"}
        result.append(row("fig13", params, observed, id=id_, status=status, **where))
    return result


def lists() -> Rows:
    layouts = ex.fig13.table6.LAYOUTS
    observed = [observation("vertices", 100)]
    observed += by("slots", "setting", dict.fromkeys(layouts, 1000))
    observed += by("list_blocks", "setting", dict.fromkeys(layouts, 600))
    observed += by("list_blocks", "setting", dict.fromkeys(layouts, 9), statistic="longest")
    data = TWIN | {"scale": 0.1}
    return [row("table6", {"dataset": name, "scale": 0.1}, observed, data=data)
            for name in ("gdelt", "netflix")]  # fmt: skip


SMALL = {"cpu": 1.0, "cuda": 0.1, "unified": 0.11, "hybrid": 0.2, "uva": 0.4}
SLOW = {"cpu": 0.3, "hybrid": 0.1, "uva": 0.4}


PLACES: list[Case] = [
    ("fig13-small-graph-best", lambda: placed("reddit", **SMALL), "value cuda"),
    ("fig13-small-graph-best", lambda: placed("reddit", **SMALL | {"cuda": 0.3}), "opposite"),
    ("fig13-small-graph-best", lambda: placed("reddit", **SMALL | {"unified": "oom"}), "-"),
    *(("fig13-hybrid-over-uva", lambda a=a, b=b: placed("reddit", hybrid=0.2, uva=0.4)
       + placed("gdelt", hybrid=a, uva=b), wanted)
      for a, b, wanted in ((0.2, 0.4, "value"), (0.4, 0.2, "opposite"))),
    ("fig13-uva-below-cpu", lambda: placed("gdelt", cpu=0.3, uva=0.4), "value"),
    ("fig13-uva-below-cpu", lambda: placed("gdelt", cpu=0.4, uva=0.3)
     + placed("netflix", cpu=0.3, uva=0.4), "opposite"),
    ("fig13-um-thrash", lambda: placed("gdelt", unified=4.0, **SLOW), "value"),
    ("fig13-um-thrash", lambda: placed("gdelt", unified=0.5, **SLOW), "opposite"),
    ("fig13-um-thrash", lambda: placed("gdelt", 4 << 20, unified=4.0, **SLOW), "-"),
    ("fig13-um-thrash", lambda: placed("gdelt", ballast=0, unified=4.0, **SLOW), "-"),
    ("fig13-cuda-only-oom", lambda: placed("gdelt", cpu=0.3, cuda=0.1)
     + placed("netflix", cpu=0.3, cuda="oom") + lists(), "opposite"),
]  # fmt: skip

# --- layouts of Figure 12, blocks of Table 6 ------------------------------------------------------


@cache
def sampled() -> Row:
    result = ex.fig12.measure(BY_NAME["gdelt"], 1 / 4096, CONTEXT)
    return row("fig12", {"dataset": "gdelt", "scale": 1 / 4096}, result, preset="smoke")


@cache
def looked_up() -> Row:
    params = {"dataset": ex.sampling_ablation.LOOKUP}
    return row("sampling_ablation", params, ex.sampling_ablation.lookups(CONTEXT), preset="smoke")


@cache
def blocks(dataset: str) -> Row:
    scale = {"gdelt": 1 / 512, "netflix": 1 / 256}[dataset]
    cell = Cell(
        paper="gnnflow", experiment="table6", group=dataset,
        params={"dataset": dataset, "scale": scale},
    )  # fmt: skip
    return row("table6", cell.params, ex.table6.Table6().run(cell, CONTEXT))


def layouts(**ratios: float) -> Row:
    """The measured row with these throughputs over static, for all ways to sample."""
    speed = {"Static": 1.0, **{name.replace("_", " "): value for name, value in ratios.items()}}
    observed = [one for one in sampled().observations if one.metric != "speedup"]
    pairs = [*((name, ex.fig12.STATIC) for name in ex.fig12.LAYOUTS[:-1]), *ex.fig12.PAIRS]
    for walk, policy, (fast, slow) in product(ex.fig12.SEARCHES, ex.fig12.POLICIES, pairs):
        value = speed[fast] / speed[slow]
        observed.append(observation(
            "speedup", value, low=value * 0.95, high=value * 1.05, setting=fast, baseline=slow,
            method=walk, policy=policy,
        ))  # fmt: skip
    return replace(sampled(), observed=observed)


def rounds_of_layouts() -> Rows:
    """Sharp intervals in each process, and processes that do not agree which one is faster."""
    return [
        layouts(**PRINTED),
        replace(layouts(**PRINTED | {"Adaptive": 0.2, "Strawman": 0.3}), id="2", round=2),
        replace(layouts(**PRINTED | {"Adaptive": 0.2, "Strawman": 0.9}), id="3", round=3),
    ]


def whole() -> Row:
    """GDELT at full size with the printed numbers of Table 6."""
    vertices = 16_682
    one = replace(blocks("gdelt"), params={"dataset": "gdelt", "scale": 1.0})
    one = changed(one, "vertices", vertices, of=None)
    for name, printed in ex.table6.printed_table("gdelt").items():
        average, longest, edges = printed["average"], printed["longest"], printed["edge MB"]
        one = changed(one, "list_blocks", round(average * vertices), setting=name, statistic=None)
        one = changed(one, "list_blocks", longest, setting=name, statistic="longest")
        one = changed(one, "slots", round(edges * ex.table6.MIB / 20), setting=name)
    return one


PRINTED = {"Adj._List": 0.01, "Fixed-size": 0.1, "Strawman": 0.2, "Adaptive": 0.6}
OTHER = {"Adj._List": 0.5, "Fixed-size": 0.9, "Strawman": 0.2, "Adaptive": 0.1}
BEST, NOTHING, BELOW = (
    f"fig12-{name}" for name in ("adaptive-best-dynamic", "adjlist-zero", "fixed-below-strawman")
)
LONGEST = 1 << ex.sampling_ablation.LENGTHS["smoke"]
LAYOUTS: list[Case] = [
    *((name, lambda: [layouts(**PRINTED)], "value weak timed twin")
      for name in (BEST, NOTHING, BELOW)),
    *((name, lambda: [layouts(**OTHER)], "opposite") for name in (BEST, NOTHING, BELOW)),
    (BEST, rounds_of_layouts, "undecided"),
    (NOTHING, lambda: [replace(layouts(**PRINTED), params={"dataset": "sx-mathoverflow"})], "-"),
    ("s41-search-log-time", lambda: [changed(looked_up(), "comparisons", LONGEST, size=LONGEST)],
     "X"),
    ("s41-append-no-resort", lambda: [changed(blocks("gdelt"), "vertices", 3, of="merged")],
     "X"),
    *((f"tab6-gdelt-{column}", lambda: [whole()], "value")
      for column in ("avg-list", "max-list", "edge-mb", "meta-mb")),
]  # fmt: skip

# --- sizes and building ---------------------------------------------------------------------------


def graphs(edge_of_gdelt: int | None = None) -> Rows:
    observed = []
    for kind in ("node", "edge"):
        printed = _claim(f"tab5-{kind}-dim").value
        widths = {DATASET_OF[title]: width or 0 for title, width in printed.items()}
        if kind == "edge" and edge_of_gdelt is not None:
            widths["gdelt"] = edge_of_gdelt
        observed += by("columns", "dataset", widths, of=kind)
    for what, seconds in (("stream", 1826.0 * 86_400), ("step", 900.0)):
        observed += by("window", "dataset", dict.fromkeys(widths, seconds), of=what)
    return [row("table5", {"what": "sizes"}, observed)]


def shares() -> Rows:
    result = []
    for baseline in ("tgl", "dgl"):
        observed = []
        for i, model in enumerate(("tgn", "tgat", "dysat") if baseline == "tgl" else ("gat",)):
            observed.append(observation("step_time", 1.0, model=model))
            observed.append(observation("time_share", 0.5 + i / 100, model=model))
            observed += by("phase_time", "phase", dict.fromkeys(ex.fig2.PARTS, 0.2), model=model)
        result.append(row("fig2", {"dataset": "gdelt", "baseline": baseline}, observed))
    return result


def stages(scale: float = 0.001) -> Rows:
    shared = {"load": 0.1, "build": 0.9}
    return [
        row("table2", {"dataset": "mag", "baseline": baseline},
            [*by("preparation_time", "phase", spent), observation("epoch_time", 5.0)],
            data={"twin": True, "scale": scale})
        for baseline, spent in (("tgl", shared), ("dgl", shared | {"partition": 2.0}))
    ]  # fmt: skip


TABLES: list[Case] = [
    ("tab5-node-dim", graphs, "value"),
    ("tab5-edge-dim", graphs, "value"),
    ("tab5-span", graphs, "opposite"),  # GDELT alone spans five years
    ("tab5-granularity", graphs, "opposite"),
    ("tab5-edge-dim", lambda: graphs(1), "opposite"),
    ("s1-sample-fetch-share", shares, "value"),
    ("s22-build-share", stages, "value"),
    ("s22-build-range", lambda: stages(1e-4), "value"),
]  # fmt: skip

CASES = [*ACCURACY, *ROUNDS, *CACHES, *RANKS, *PLACES, *LAYOUTS, *TABLES]


def _claim(name: str) -> Any:
    return CLAIMS[f"gnnflow-{name}"]


@pytest.mark.parametrize("case", CASES, ids=[f"{c[0]}-{number}" for number, c in enumerate(CASES)])
def test_rows_decide_a_claim(case) -> None:
    name, rows, wanted, *floor = case
    _, verdict = judged(name, rows(), *floor)
    words = (verdict.agreement, verdict.strength, verdict.source, verdict.data, verdict.glyph)
    assert set(wanted.split()) <= {*words, verdict.device}


def test_claims_are_judged_on_the_published_form() -> None:
    """Additions of dgbench win no claim, and races without the published form decide none."""
    alone, both, additions = (
        [race("gdelt", model, 1.5, **how) for model in ALL_THREE]
        for how in ({}, {"ours": 9.0}, {"form": ex.round_race.GNNFLOW})
    )
    for claim in ("fig8-gdelt", "abs-max-retrain-speedup", "s61-half-minute"):
        (one, _), (other, _) = judged(claim, alone), judged(claim, both)
        assert (one.measured, one.reason) == (other.measured, other.reason)
        assert judged(claim, additions)[1].glyph == "-"


def test_words_of_times_are_seconds() -> None:
    words = {"15 mins.": 900.0, "1 day": 86_400.0, "few secs.": 0.0, "7.2 years": 7.2 * 31_557_600}
    assert {each: ex.table5.seconds_of(each) for each in words} == pytest.approx(words)
