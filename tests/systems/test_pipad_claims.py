"""PiPAD's claims by one made row for each condition of a rule: what holds, fails and stays open.

What kept runs and synthetic rows decide is in `tests/golden/pipad`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import pytest
from pipad_rows import made, observation, race_rows, verdict

from dgbench.harness.store.row import Row
from dgbench.lab.quality import MIN_SEEDS
from dgbench.systems.pipad import PAPER
from dgbench.systems.pipad.experiments import epochs, fig3, fig9, fig12, tuning
from dgbench.systems.pipad.experiments.main_races import TRAINING
from dgbench.systems.pipad.experiments.settings import MODELS
from dgbench.systems.pipad.ladders import BARE, PUBLISHED, REUSED, STAGES
from dgbench.systems.pipad.tuner import OPTIONS

TIMES = {"pygt": 12.0, "pygt-r": 9.0, "pygt-g": 8.0, BARE: 6.0, REUSED: 4.0, PUBLISHED: 2.0,
         "pipad": 1.0}  # fmt: skip
LARGE, SMALL = "flickr", ("pems08", "covid19-england")
GRAPHS = (LARGE, *SMALL)
SPEED = (
    "abs-speedup-range", "fig10-speedup-range-pygt", "fig10-avg-evolvegcn", "fig10-avg-mpnn-lstm",
    "fig10-avg-t-gcn", "fig10-pipad-best", "s52-evolvegcn-vs-pygtg",
)  # fmt: skip


def race(**changed: Mapping[str, float]) -> list[Row]:
    """Rows of all models on three graphs; `changed` times by graph, model or `every`."""
    return [
        row
        for dataset in GRAPHS
        for model in MODELS
        for row in race_rows(
            {**TIMES, **changed.get("every", {}), **changed.get(dataset, {}),
             **changed.get(model, {})}, dataset, model,
        )
    ]  # fmt: skip


def lacking(rows: Sequence[Row], *systems: str, **params: Any) -> list[Row]:
    return [row for row in rows if row.params["system"] not in systems
            or not params.items() <= row.params.items()]  # fmt: skip


def lowest(change: Mapping[tuple[str, str], float]) -> list[Row]:
    """Published times by graph and model, two seconds elsewhere."""
    return [row for d in GRAPHS for m in MODELS
            for row in race_rows({**TIMES, PUBLISHED: change.get((d, m), 2.0)}, d, m)]  # fmt: skip


def counts(metric: str, pipad: int | None, baseline: int | None) -> list[Row]:
    rows = []
    for system in (PUBLISHED, "pipad", BARE, "pygt"):
        count = pipad if system in (PUBLISHED, "pipad") else baseline
        found = [observation("counted_steps", 3)]
        found += [] if count is None else [observation(metric, count)]
        params = {"dataset": LARGE, "model": "tgcn_model", "system": system}
        rows.append(made("fig10", params, found, round=9))
    return rows


def removed(pygtg: float, left: int | None) -> list[Row]:
    return race(tgcn_model={"pygt-g": pygtg}) + counts("aggregations", left, 48)


def prepared(seconds: float) -> list[Row]:
    """Preparation of that long, beside epochs of 2 s of PyGT and of 1 s on our engine."""
    return [
        row
        for system, metric, value in ((PUBLISHED, "preparation_time", seconds),
                                      ("pygt", "epoch_time", 2.0), (BARE, "epoch_time", 1.0))
        for row in race_rows({system: value}, LARGE, "evolvegcn", metric=metric)
    ]  # fmt: skip


def layers(gain: Mapping[int, float]) -> list[Row]:
    """Layers by length, gains over our engine; the released one is ten times slower."""
    return [
        row for dim, g in gain.items()
        for row in race_rows({"pygt": 10 * g, BARE: g, PUBLISHED: 1.0, "pipad": 0.1},
                             "covid19-england", "", "fig11", "operation_time", dim=dim)
    ]  # fmt: skip


def thirds(*costs: float, noise: float = 0.005) -> list[Row]:
    params = {"dataset": "covid19-england", "model": "evolvegcn", "system": "pipad"}
    return [
        made("epochs", params, [
            observation("slowdown", cost * (1 + noise * (number - 2)), setting=part,
                        baseline=epochs.ALL_EPOCHS)
            for part, cost in zip(epochs.PARTS, costs, strict=True)], round=number + 1)
        for number in range(5)
    ]  # fmt: skip


TRAINED = [
    *((name, glyph, rows) for name in SPEED for glyph, rows in (
        ("S" if name.endswith(("mpnn-lstm", "best", "pygtg")) else "s", race),
        ("O", lambda: race(every={PUBLISHED: 7.0})),  # as it is 12 times as fast as PyGT
        ("u", lambda: race(every={PUBLISHED: 4.0, BARE: 4.0})),
        ("-", lambda: lacking(race(), *STAGES)))),
    ("fig10-pipad-best", "S", lambda: lacking(race(), PUBLISHED, dataset=LARGE)),
    ("fig10-pipad-best", "S", lambda: lacking(race(), "pygt-g", dataset=LARGE)),
    ("fig10-pipad-best", "O", lambda: lacking(race(flickr={BARE: 1.5}), "pygt-g", dataset=LARGE)),
    ("s52-tgcn-all-agg-removed", "-", lambda: race(tgcn_model={"pygt-g": 9.0})),
    ("s52-tgcn-all-agg-removed", "S", lambda: removed(9.0, None)),
    ("s52-tgcn-all-agg-removed", "O", lambda: removed(9.0, 3)),
    ("s52-tgcn-all-agg-removed", "O", lambda: removed(5.0, None)),
    ("s52-mpnn-lowest", "S", lambda: lowest({(LARGE, "mpnn_lstm"): 3.3})),
    ("s52-mpnn-lowest", "O", lambda: lowest({(d, m): 3.9 for d in SMALL for m in MODELS})),
    ("fig10-small-gain-more", "s", lambda: race(flickr={PUBLISHED: 4.0})),
    ("fig10-small-gain-more", "O", lambda: race(flickr={PUBLISHED: 1.0})),
    ("fig10-small-gain-more", "u", race),
    ("s43-preprocessing-epochs", "S", lambda: prepared(1.0)),
    ("s43-preprocessing-epochs", "v", lambda: prepared(3.0)),
    ("s43-preprocessing-epochs", "O", lambda: prepared(5.0)),
    ("fig11b-dim-sensitivity", "S", lambda: layers({2: 6.0, 16: 7.0, 32: 5.5})),
    ("fig11b-dim-sensitivity", "O", lambda: layers({2: 6.0, 16: 7.0, 32: 2.0})),
    ("s43-epochs-similar", "S", lambda: thirds(1.0, 1.01, 0.99)),
    ("s43-epochs-similar", "O", lambda: thirds(1.3, 1.0, 0.9)),
    ("s43-epochs-similar", "O", lambda: thirds(0.7, 1.0, 1.0)),
    ("s43-epochs-similar", "u", lambda: thirds(1.0, 1.0, 1.0, noise=0.2)),
]  # fmt: skip


# What depends on a reading, a model or a device


def sizes(**changed: int) -> list[Row]:
    found = {"N": 129, "E": 82_529, "E_smoothed": 107_930, "T": 61, "D": 16} | changed
    of = {"N": ("vertices", {}), "E": ("edges", {"of": "raw"}),
          "E_smoothed": ("edges", {"of": "smoothed"}), "T": ("snapshots", {}),
          "D": ("length", {"of": "input"})}  # fmt: skip
    observed = [observation(of[key][0], value, **of[key][1]) for key, value in found.items()]
    data = {"dataset": "covid19-england", "kind": "real"}
    return [made("table1", {"dataset": "covid19-england"}, observed, data=data)]


def busy(pygtg: float, pipad: float, last: float | None = None) -> list[Row]:
    rows = [
        made("table2", {"dataset": dataset, "model": model, "system": system},
             [observation("utilisation", value)], device="cuda")
        for dataset in ("hepth", "pems08")
        for model in MODELS
        for system, value in (("pygt-g", pygtg), ("pipad", pipad))
    ]  # fmt: skip
    if last is not None:
        rows[-1].observed[0] = observation("utilisation", last)
    return rows


def reordered(*seconds: float) -> list[Row]:
    return [
        made("preparation", {"part": "reorder", "dataset": "flickr"},
             [observation("operation_time", s, phase="reordering")],
             round=number, data={"scale": 1.0, "twin": True})
        for number, s in enumerate(seconds)
    ]  # fmt: skip


def reuse(gap: float) -> list[Row]:
    found = [observation("relative_error", gap, of="reuse")]
    return [made("preparation", {"dataset": "hepth"}, found, deviation={"output": gap})]


def copies(percent: float, device: str, sm: float | None = None, rounds: int = 5) -> list[Row]:
    params = {"dataset": "covid19-england", "model": "evolvegcn", "system": "pygt"}
    share = observation("time_share", percent / 100, phase="transfer")
    probes = {} if sm is None else {fig3.SM.name: sm}
    return [made("fig3", params, [share], device=device, instrumented=sm is None, round=n,
                 probes=probes)
            for n in range(rounds)]  # fmt: skip


READ = [
    ("tab1-covid", "v", sizes),
    ("tab1-covid", "R", lambda: sizes(N=130)),
    ("tab1-covid", "X", lambda: sizes(N=200)),
    ("tab1-covid", "R", lambda: sizes(N=130, E_smoothed=1)),  # fitted: no say
    ("tab1-covid", "X", lambda: sizes(N=130, T=60)),
    ("tab2-order-pipad-over-pygtg", "R", lambda: busy(0.5, 0.6)),
    ("tab2-order-pipad-over-pygtg", "d", lambda: busy(0.5, 0.6, last=0.1)),
    ("tab2-order-pipad-over-pygtg", "X", lambda: busy(0.6, 0.5)),
    ("s2-reordering-cost", "R", lambda: reordered(2.0, 2.1, 2.0, 2.2, 2.0)),
    ("s2-reordering-cost", "S", lambda: reordered(2.0)),
    ("s2-reordering-cost", "X", lambda: reordered(*[0.2] * 5)),
    ("s2-reordering-cost", "X", lambda: reordered(*[80.0] * 5)),
    ("s2-reordering-cost", "u", lambda: reordered(0.9, 1.1, 0.9, 1.1, 1.0)),
    ("s33-first-agg-param-free", "R", lambda: reuse(1e-7)),
    ("s33-first-agg-param-free", "X", lambda: reuse(1e-2)),
    *((name, glyph, lambda at=at: copies(*at))
      for name in ("fig3-transfer-share", "s1-transfer-share-approx")
      for glyph, at in (("O", (2.0, "cpu")), ("S", (39.0, "cpu")), ("R", (39.0, "cuda")))),
    ("fig3-sm-util", "-", lambda: copies(2.0, "cpu")),
    ("fig3-sm-util", "-", lambda: copies(2.0, "cuda")),  # no meter
    ("fig3-sm-util", "R", lambda: copies(2.0, "cuda", 30.0)),
    ("fig3-sm-util", "X", lambda: copies(2.0, "cuda", 90.0)),
]  # fmt: skip


# Figures 4, 9 and 12, and the tuner


def split(model: str, dataset: str = LARGE, **phases: float) -> list[Row]:
    """A plain run and an instrumented one of three steps, of which the first is in no phase."""
    params, samples = {"dataset": dataset, "model": model, "system": "pygt"}, (1.0,)
    step = observation("step_time", median(samples), samples=samples)
    told = [observation("phase_time", 2 * s, phase=name) for name, s in phases.items()]
    plain = made("fig4", params, [step])
    again = {"id": f"{plain.id}-told", "warmup": 2, "instrumented": True}
    return [plain, made("fig4", params, [step, *told], **again)]


def leads(last: float = 0.6) -> list[Row]:
    """Graph layers take 0.6 of all models, `last` of the T-GCN model."""
    return [
        row
        for model in MODELS
        for share in [last if model == "tgcn_model" else 0.6]
        for row in split(model, gnn=share, rnn=0.9 - share, update=0.1)
    ]


def heavy(large: float, small: float) -> list[Row]:
    return (split("mpnn_lstm", LARGE, rnn=large, gnn=1 - large)
            + split("mpnn_lstm", "hepth", rnn=small, gnn=1 - small))  # fmt: skip


def rest(gnn: float) -> list[Row]:
    return (split("evolvegcn", LARGE, gnn=gnn, rnn=1 - gnn)
            + split("evolvegcn", "hepth", gnn=0.95, rnn=0.05))  # fmt: skip


def balance(rounds: int = 5, **graphs: tuple[float, float]) -> list[Row]:
    """Busiest over balanced time of CSR, and of slices, by graph."""
    rows = []
    for (dataset, (csr, sliced)), n in ((one, n) for one in graphs.items() for n in range(rounds)):
        gaps = [({"format": "csr"}, csr * (1 + n / 1000))]
        gaps += [({"format": "sliced", "cap": cap}, sliced) for cap in fig12.CAPS]
        found = [observation("worker_time", value, of=of, **dims) for dims, busiest in gaps
                 for of, value in (("busiest", busiest), ("balanced", 1.0))]  # fmt: skip
        rows.append(made("fig12", {"part": "balance", "dataset": dataset}, found, round=n + 1))
    return rows


def sliced(*gains: tuple[str, str, float, float]) -> list[Row]:
    """Five rounds around the gain of slices by graph and model, with noise."""
    return [
        made("fig12", {"part": "train", "dataset": dataset, "model": model, "system": "pipad"},
             [observation("speedup", gain * (1 + noise * (n - 2)), setting="sliced")],
             round=n + 1, deviation={"output": 0.0})
        for dataset, model, gain, noise in gains
        for n in range(5)
    ]  # fmt: skip


def gained(gain, device: str = "cpu") -> list[Row]:
    """Rows of Figure 9 whose gains are `gain(rate, dim, S_per)`, five rounds."""
    points = [(rate, fig9.AT_DIM) for rate in (0.1, 0.9)] + [(fig9.AT_RATE, d) for d in (2, 16)]
    return [
        made("fig9", {"dataset": "hepth", "overlap_rate": rate, "dim": dim},
             [observation("operation_time", 1.0),
              *(observation("operation_time", (1 + i / 1000) / gain(rate, dim, s),
                            snapshots_together=s) for s in fig9.SIZES)],
             round=i, data={"twin": True}, device=device)
        for rate, dim in dict.fromkeys(points)
        for i in range(5)
    ]  # fmt: skip


def tuned(dataset=LARGE, model="evolvegcn", gib=7.9, decided=8, options=OPTIONS, system=PUBLISHED):
    """A tuner's run; a frame keeps so much at the printed size."""
    nbytes = int(gib * 2**30 * 1000 / 2_300_000)  # Flickr has 2.3 M vertices
    found = [
        observation("memory", nbytes, of="frame"), observation("vertices", 1000),
        observation("frames", decided, of="decided"),
        *(observation("frames", decided, of="option", snapshots_together=s)
          for s in (options if decided else ())),
        *(observation("step_time", s + 1.0, snapshots_together=s) for s in tuning.SIZES),
        observation("slowdown", 1.05), observation("partition_size", 1, setting="best"),
        observation("partition_size", 1),
    ]  # fmt: skip
    params = {"dataset": dataset, "model": model, "system": system}
    return [made("tuning", params, found, data={"twin": True})]


FIGURES = [
    ("fig4-gnn-dominates-compute", "S", leads),
    ("fig4-gnn-dominates-compute", "O", lambda: leads(0.2)),
    ("fig4-gnn-dominates-compute", "u", lambda: leads(0.45)),
    ("fig4-gnn-dominates-compute", "-", lambda: leads()[:4]),
    ("s52-mpnn-rnn-heavy", "S", lambda: heavy(0.8, 0.3)),
    ("s52-mpnn-rnn-heavy", "s", lambda: heavy(0.5, 0.3)),
    ("s52-mpnn-rnn-heavy", "u", lambda: heavy(0.3, 0.31)),
    ("s52-mpnn-rnn-heavy", "O", lambda: heavy(0.3, 0.8)),
    ("s52-mpnn-rnn-heavy", "-", lambda: heavy(0.8, 0.3)[:2]),
    ("s52-evolvegcn-other-small", "S", lambda: rest(0.9)),
    ("s52-evolvegcn-other-small", "v", lambda: rest(0.6)),
    ("s52-evolvegcn-other-small", "O", lambda: rest(0.2)),
    ("fig12-load-balance", "S", lambda: balance(flickr=(9.0, 1.1), hepth=(2.0, 1.5))),
    ("fig12-load-balance", "O", lambda: balance(flickr=(9.0, 1.1), hepth=(1.2, 1.5))),
    ("fig12-load-balance", "s", lambda: balance(flickr=(2.0, 1.5), hepth=(9.0, 1.1))),
    ("fig12-load-balance", "u", lambda: balance(1, flickr=(9.0, 1.1), hepth=(2.0, 1.5))),
    *(("fig12-speedup-trend", glyph,
       lambda other=other: sliced(("youtube", "evolvegcn", 2.0, 0.01), *other))
      for glyph, other in (("S", [("youtube", "mpnn_lstm", 1.2, 0.01)]),
                           ("u", [("youtube", "mpnn_lstm", 1.99, 0.05)]),
                           ("O", [("hepth", "evolvegcn", 3.0, 0.01)]), ("-", []))),
    ("fig9a-sper-order-vs-or", "S", lambda: gained(lambda rate, dim, s: s)),
    ("fig9a-sper-order-vs-or", "R", lambda: gained(lambda rate, dim, s: s, "cuda")),
    ("fig9a-sper-order-vs-or", "O", lambda: gained(lambda rate, dim, s: 1 / s)),
    ("fig9a-sper-order-vs-or", "X", lambda: gained(lambda rate, dim, s: 1 / s, "cuda")),
    ("fig9a-sper-order-vs-or", "O",
     lambda: gained(lambda rate, dim, s: 0.5 if (s, rate) == (8, 0.1) else s)),
    ("fig9b-sper-order-vs-dim", "s",  # on average clearly in order
     lambda: gained(lambda rate, dim, s: 6.0 if (s, dim) == (4, 2) else s / 2)),
    ("fig9b-sper-order-vs-dim", "u",
     lambda: gained(lambda rate, dim, s: 2.0 if s > 2 and dim == 2 else s)),
    ("s44-low-or-penalty", "S", lambda: gained(lambda rate, dim, s: s * (1 + rate))),
    ("s44-low-or-penalty", "u",
     lambda: gained(lambda rate, dim, s: 0.5 if (s, rate) == (8, 0.1) else s)),
    ("s44-low-or-penalty", "O", lambda: gained(lambda rate, dim, s: s / (1 + rate))),
    ("s52-sper-large", "S", lambda: tuned() + tuned(model="tgcn_model", gib=1, decided=0)
     + tuned("hepth", gib=1)),
    ("s52-sper-large", "s", lambda: tuned(gib=8.1)),
    ("s52-sper-large", "s", lambda: tuned() + tuned(model="mpnn_lstm", gib=3.9)),
    ("s52-sper-large", "O", lambda: tuned(gib=1)),
    ("s43-sper-options", True, tuned),
    ("s43-sper-options", False, lambda: tuned(options=(1, 2, 8))),
    ("s43-sper-options", True,  # as published, where there is such a row
     lambda: tuned(options=(1, 2, 8), system="pipad") + tuned("hepth")),
    ("s43-sper-options", False, lambda: tuned(options=(1, 2, 8), system="pipad")),
]  # fmt: skip
EVERY = [*TRAINED, *READ, *FIGURES]


@pytest.mark.parametrize(
    ("name", "word", "rows"), EVERY, ids=[f"{name}-{n}" for n, (name, *_) in enumerate(EVERY)]
)
def test_a_rule_by_each_of_its_conditions(name, word, rows) -> None:
    """The glyph of a verdict; of a claim by definition, what its check finds."""
    if isinstance(word, bool):
        claim = type("Claim", (), {"id": name, "value": [2, 4, 8]})
        assert PAPER.checks[f"pipad-{name}"](claim, rows()).holds is word
    else:
        assert verdict(rows(), f"pipad-{name}").glyph == word


@pytest.mark.parametrize(("mean", "below"), [(0.6, True), (0.1, False)])
def test_a_race_reads_the_errors_of_whole_trainings(mean, below) -> None:
    where = {"dataset": "covid19-england", "model": "tgcn_model"}
    trained = [made("quality", {**where, "part": "trained", "seed": seed},
                    [observation("mean_squared_error", mean + 0.001 * seed)])
               for seed in range(1, MIN_SEEDS + 1)]  # fmt: skip
    errors = [observation("mean_squared_error", error, method=method)
              for method, error in (("last_value", 0.3), ("historical_mean", 2.0))]  # fmt: skip
    plain = made("quality", {"dataset": where["dataset"], "part": "untrained"}, errors)
    (judged,) = {comparison.quality for comparison in TRAINING.comparisons if comparison.quality}
    found = judged([*trained, plain], where)
    assert (found.below, found.method, found.method_score) == (below, "last_value", 0.3)
    assert judged([*trained[1:], plain], where) is None
    assert judged([*trained, plain], {**where, "model": "mpnn_lstm"}) is None
