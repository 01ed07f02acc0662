"""Claims of DGC on races and stale rows, by one made row for each condition of a rule.

What kept, disturbed and synthetic rows decide is in `tests/golden/dgc`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import product
from typing import Any

import paper_rows
import pytest

from dgbench.harness.claims.ledger import load_ledger
from dgbench.harness.claims.verdict import Verdict
from dgbench.harness.store.row import Row
from dgbench.lab.table import Observation, observation
from dgbench.systems.base import Finding, Measurement
from dgbench.systems.dgc import PAPER
from dgbench.systems.dgc.experiments import fig18
from dgbench.systems.dgc.experiments.race_rows import races
from dgbench.systems.dgc.experiments.race_runs import (
    ADDED,
    CONTIGUOUS,
    DGC,
    EXACT,
    PHASES,
    PLAIN,
    PSS,
    PSS_TS,
    PTS,
    TWINS,
)
from dgbench.systems.dgc.experiments.settings import DATASET_OF, MODEL_OF, MODELS, standing_in

seen = observation
FLOOR = 0.01
"""Noise floor of made-up runs."""
CLAIMS = {claim.id.removeprefix("dgc-"): claim for claim in load_ledger(PAPER.ledger)}
REAL = ("sx-mathoverflow", "amazon-magazine")
"""Real graphs of the sites of Stack and Amazon."""
USUAL = {
    PSS: 6.0, PTS: 4.0, PSS_TS: 5.0, PLAIN: 3.0, EXACT: 2.0, DGC: 1.5, CONTIGUOUS: 6.5
}  # fmt: skip


def judge(name: str, rows: Sequence[Row], *, floor: float | None = FLOOR) -> Verdict:
    """The verdict of a claim from these rows, as the harness reaches it."""
    return paper_rows.judged(PAPER, CLAIMS[name], rows, floor)[1]


def find(name: str, rows: Sequence[Row]) -> Finding:
    """Finding of a claim in these rows."""
    return PAPER.checks[f"dgc-{name}"](CLAIMS[name], rows)


def row_of(
    experiment: str, params: dict[str, Any], observed: Iterable[Observation] = (), **fields: Any
) -> Row:
    """A row on real data; `fields` replace what it would hold."""
    name = "/".join(map(str, params.values()))
    common = {
        "id": f"{experiment}/{name}", "paper": "dgc", "group": "g", "data": {"twin": False},
        "observed": list(observed),
    }  # fmt: skip
    return Row(experiment=experiment, params=params, **{**common, **fields})


def race_row(
    experiment: str,
    raced: dict[tuple[str, str], dict[str, float]],
    *,
    twin: bool = False,
    ranks: int = 4,
    link: str = "gloo",
    noise: float = 0.01,
    work: dict[str, float] | None = None,
    sizes: tuple[int, int] = (1000, 2000),
    part: dict[str, int] | None = None,
    round: int = 1,
) -> Row:
    """A row as `race` makes it: {(dataset, model): {contender: seconds}}.

    A turn is off by `noise` in turn; `work` of each epoch, half a second, is no communication.
    """
    deviation, found = {}, Measurement()
    for (dataset, model), times in raced.items():
        dims = {"dataset": dataset, **(part or {}), "model": model}
        deviation[f"{dataset}/{model}"] = 1e-7
        for n, (name, seconds) in enumerate(times.items()):
            observe = partial(found.observe, setting=name, **dims)
            for turn in range(6):
                observe("epoch_time", seconds * (1 + noise * ((turn + n) % 3 - 1)), turn=turn)
            own = (work or {}).get(name, 0.5)
            spent = dict.fromkeys(PHASES, 0.0) | {"gnn": own, "communicate": seconds - own}
            for phase, s in spent.items():
                observe("phase_time", s, phase=phase)
            observe("divergence", 1.5)
            observe("exchanged", int(1e6 * seconds))
        found.observe("vertex_steps", sizes[0], **dims)
        found.observe("edges", sizes[1], **dims)
    name = next(iter(raced))[0]
    params = {
        "part": "race", "dataset": name, "models": " ".join(m for _, m in raced), "ranks": ranks,
        "link": link,
    }  # fmt: skip
    return row_of(
        experiment, params, found.observations, data={"twin": twin}, deviation=deviation,
        id=f"{experiment}-{name}-{ranks}-{twin}-{link}-{round}", round=round,
    )  # fmt: skip


def fig12(change: dict | None = None, datasets: Sequence[str] = REAL, **more: Any) -> list[Row]:
    """Races of all models on each of these graphs; usual times but for `change`."""
    times = {**USUAL, **(change or {})}
    return [race_row("fig12", {(name, m): times for m in MODELS}, **more) for name in datasets]


def twins(change: dict | None = None) -> list[Row]:
    """The same races on twins of the paper's graphs."""
    return fig12(change, TWINS, twin=True)


def fig4(times: dict[str, dict[str, float]], **more: Any) -> list[Row]:
    """Races of DySAT by graph; of `more`, what is told by graph."""
    rows = []
    for name, one in times.items():
        own = {k: v.get(name) if isinstance(v, dict) else v for k, v in more.items()}
        rows.append(race_row("fig4", {(name, "dysat"): one}, **own))
    return rows


def stale_row(
    observed: list[Observation], experiment: str = "table3", *, graphs: str = "wikipedia",
    twin: bool = False, **fields: Any,
) -> Row:  # fmt: skip
    """A row of the experiments on stale aggregation."""
    names = {one.dims["dataset"]: None for one in observed if "dataset" in one.dims}
    data = {"twin": twin, "dataset": ", ".join(names or [graphs])}
    return row_of(experiment, {"graphs": graphs}, observed, data=data, **fields)


def learned(
    runs: dict[tuple[str, str, str], tuple[float, float]], experiment: str = "table2",
    epochs: int | None = None, **fields: Any,
) -> Row:  # fmt: skip
    """A row of trainings: (graph, model, setting) -> (accuracy, share of rows saved)."""
    found = Measurement()
    for graph, model in {run[:2] for run in runs} if epochs else ():
        found.observe("epochs", epochs, dataset=graph, model=model)
    for (graph, model, setting), (accuracy, saved) in runs.items():
        observe = partial(found.observe, dataset=graph, model=model, setting=setting)
        observe("accuracy", accuracy)
        observe("scored", 400)
        for metric, whole, more in (("rows_sent", 1000, 0), ("exchanged", 8000, 40)):
            observe(metric, whole, of="plain")
            observe(metric, round(whole * (1 - saved)) + more)
    return stale_row(found.observations, experiment, **fields)


def seeds(
    drops: Sequence[float], saved: tuple[float, float], dataset: str = "wikipedia"
) -> list[Row]:
    """Rows of Table 2 by seed: accuracy lost at the larger threshold, rows saved at either."""
    rows = []
    for seed, drop in enumerate(drops, 1):
        runs = {
            (dataset, "dysat", "without"): (0.8, 0.0),
            (dataset, "dysat", "0.1D"): (0.8, saved[0]),
            (dataset, "dysat", "0.9D"): (0.8 - drop, saved[1]),
        }
        row = learned(runs, id=f"seed-{seed}")
        row.params["seed"] = seed
        rows.append(row)
    return rows


# Figures 4, 5(c), 12 and 18: races.

FIG4 = {
    "amazon": {PSS: 3.0, PTS: 1.0, PSS_TS: 4.0},
    "epinions": {PSS: 9.0, PTS: 1.0, PSS_TS: 2.0},
    "movie": {PSS: 1.0, PTS: 6.0, PSS_TS: 2.0},
    "stack": {PSS: 2.0, PTS: 1.0, PSS_TS: 3.0},
}
KIN = {REAL[0]: FIG4["stack"], REAL[1]: FIG4["amazon"]}
AMAZON = {PTS: 1.0, PSS: 2.0, PSS_TS: 3.0}


def processes(*seconds: float) -> list[Row]:
    return [row for n, s in enumerate(seconds, 1) for row in fig12({DGC: s}, REAL[:1], round=n)]


def quarters(dataset: str, times: list) -> list[Row]:
    """One row of four quarters, of ever more vertices and fewer edges."""
    found = [
        race_row("fig5c", {(dataset, "dysat"): one}, sizes=(n, 5 - n), part={"quarter": n})
        for n, one in enumerate(times, 1)
    ]
    found[0].observed += [one for row in found[1:] for one in row.observed]
    return found[:1]


EARLY, LATE = {PSS: 1.0, PTS: 3.0, PSS_TS: 2.0}, {PSS: 3.0, PTS: 1.0, PSS_TS: 2.0}


def curves(loss=0.0, points=0.0) -> list[Row]:
    """Eight epochs; PSS is off by `loss` and `points`, DGC a little, in half of the time."""
    observed = []
    for name, epoch in product((fig18.ONE, *fig18.SYSTEMS), range(8)):
        dims, pss, ours = {"setting": name, "epoch": epoch}, name == PSS, name == DGC
        observed += [
            seen("loss", (0.7 - 0.01 * epoch) * (1 + loss * pss), **dims),
            seen("accuracy", 0.8 - 0.01 * ours - points * pss, **dims),
            seen("epoch_time", (1 - 0.5 * ours) * (1 + 0.01 * (epoch % 3)), **dims),
        ]
    params = {"dataset": REAL[0], "model": "dysat", "ranks": 2}
    return [row_of("fig18", params, observed, deviation={"gradient": 1e-7})]


RACES = [
    ("abs-speedup-range", "s", fig12),
    ("abs-speedup-range", "-", twins),
    ("abs-speedup-range", "s", lambda: fig12({ADDED: 9.0})),  # our refinement has no say
    ("abs-speedup-range", "s",  # four ranks over Gloo count
     lambda: fig12() + fig12({DGC: 9.0}, ranks=8) + fig12({DGC: 9.0}, link="wire")),
    ("fig12-avg-t-gcn", "S", fig12),
    ("fig12-avg-dysat", "O", lambda: fig12({DGC: 8.0})),
    ("fig12-dgc-best", "S", fig12),
    ("fig12-dgc-best", "O", lambda: fig12(datasets=REAL[:1]) + fig12({PTS: 1.0}, REAL[1:])),
    ("s72-tgcn-movie", "s", lambda: fig12(datasets=["movie"]) + fig12({DGC: 9.0})),
    ("s72-tgcn-movie", "s", lambda: fig12() + twins()),
    ("s72-mpnn-epinion", "s", lambda: fig12() + fig12({DGC: 30.0}, ranks=8)),
    ("fig12-amazon-order", "S", lambda: fig12(AMAZON, ["amazon"])),
    ("fig12-amazon-order", "S", lambda: fig4({REAL[1]: {**AMAZON, CONTIGUOUS: 2.5}})),
    ("fig12-epinion-order", "O", lambda: fig12({PSS: 4.5, CONTIGUOUS: 4.6}, ["epinions"])),
    ("s731-amazon-pts-close", "S", lambda: fig12({PTS: 3.05}, ["amazon"], noise=0.001)),
    ("s731-amazon-pts-close", "O", lambda: fig12({PTS: 4.0}, ["amazon"], noise=0.001)),
    ("s731-amazon-pts-close", "O", lambda: fig12({PTS: 2.0}, ["amazon"], noise=0.001)),
    ("s731-amazon-pts-close", "u", lambda: fig12({PTS: 3.3}, ["amazon"], noise=0.05)),
    ("s732-cf-speedup", "O", lambda: fig12({EXACT: 3.5})),
    ("s733-sg-speedup", "O", lambda: fig12({DGC: 2.5})),
    ("s733-sg-speedup", "v", lambda: fig12(datasets=REAL[:1]) + fig12({DGC: 9.0}, REAL[1:])),
    ("s732-cf-stack-best", "S", lambda: fig12({EXACT: 1.0}, REAL[:1]) + fig12({}, REAL[1:])),
    ("s732-cf-stack-best", "O", lambda: fig12({}, REAL[:1]) + fig12({EXACT: 1.0}, REAL[1:])),
    ("fig4a-pts-best-three", "S", lambda: fig4(FIG4)),
    ("fig4a-epinion-pss-comm", "S", lambda: fig4(FIG4)),
    ("fig4a-epinion-pss-comm", "O", lambda: fig4(FIG4, work={"epinions": {PTS: 0.9}})),
    ("fig4a-epinion-pss-comm", "O",
     lambda: fig4({"epinions": {**FIG4["epinions"], CONTIGUOUS: 1.5}})),
    ("fig4a-movie-pts-comm", "S", lambda: fig4(FIG4)),
    ("fig4a-movie-pts-comm", "O", lambda: fig4({"movie": USUAL})),
    ("fig4a-psst-reassign", "S", lambda: fig4(FIG4)),
    ("fig4-no-single-winner", "S", lambda: fig4({REAL[0]: FIG4["movie"], REAL[1]: FIG4["amazon"]})),
    ("fig4-no-single-winner", "O", lambda: fig4(KIN)),
    ("fig5c-part-order", "S", lambda: quarters("movie", [EARLY, EARLY, LATE, LATE])),
    ("fig5c-part-order", "O", lambda: quarters("movie", [EARLY, LATE, LATE, LATE])),
    ("s5-disable-same", "O", lambda: curves(loss=0.01)),
    ("s5-disable-same", "O", lambda: curves(points=0.01)),
]  # fmt: skip


def test_a_race_without_a_noise_floor_decides_nothing() -> None:
    assert [judge("abs-speedup-range", fig12(), floor=f).glyph for f in (None, 5.0)] == ["u", "u"]


def test_ratios_of_processes_are_of_their_averaged_turns() -> None:
    """Two processes that disagree: turns of either alone would be sure of opposite leads."""
    rows = processes(1.0, 9.0, 1.0, 9.0, 5.0)
    one = races(rows, "fig12")[0]
    gain = one.gain(PTS, DGC)
    assert (gain.n, gain.processes, gain.side, len(gain.rows)) == (5, 5, 0, 5)
    assert gain.low < 1 < gain.high
    assert set(judge("fig12-dgc-best", rows).rows) == {row.id for row in rows}
    assert races(rows[:1], "fig12")[0].gain(PTS, DGC).side == 1


def test_what_stands_in_for_a_graph_of_the_paper() -> None:
    def chosen(dataset, *found, any_graph=False):
        names = (lambda one: one.removesuffix("*"), lambda one: one.endswith("*"))
        return standing_in(dataset, found, *names, any_graph=any_graph)

    twin, kin, other = "amazon*", "amazon-magazine", "wikipedia"
    assert chosen("amazon", "amazon", twin, kin, other) == ["amazon"]
    assert chosen("amazon", twin, kin, other, any_graph=True) == [kin]
    assert chosen("amazon", twin, other, any_graph=True) == [other]
    assert chosen("amazon", twin, other) == [twin]
    assert chosen("amazon", other) == []
    assert chosen("movie", kin, other, any_graph=True) == [kin, other]


# Stale aggregation: section 5.2, Figure 11, Tables 2 and 3.


def printed(name: str, points=0.0, share=0.0, only: tuple[str, ...] = ()) -> list[Row]:
    """The printed numbers of a cell of Table 2 or 3, moved by points of accuracy or by shares."""
    claim = CLAIMS[name]
    table, dataset = name.startswith("tab2"), DATASET_OF[claim.workload["datasets"][0]]
    model = "dysat" if table else MODEL_OF[claim.workload["model"]]
    runs = {(dataset, model, "without"): (0.7, 0.0)}
    for key, value in claim.value.items():
        setting = {"0": "without"}.get(str(key), str(key))
        if only and setting not in (*only, "without"):
            continue
        moved = 0 if setting == "without" else points
        run = (value + moved, 0.5) if "-acc-" in name else (0.7, value / 100 + share)
        runs[dataset, model, setting] = run
    return [learned(runs, "table2" if table else "table3")]


def shares(name: str, share: float) -> list[Row]:
    work = CLAIMS[name].workload
    dims = {"dataset": DATASET_OF[work["datasets"][0]], "epoch": work["epoch"]}
    observed = [seen("cumulative_share", share, limit=work["threshold"], **dims)]
    return [stale_row(observed, "fig11", graphs=dims["dataset"])]


def distances(last: float) -> list[Row]:
    observed = [
        seen("distance", median, dataset=name, epoch=epoch, quantile=0.5)
        for name, late in (("wikipedia", 0.1), ("email-eu-core", last))
        for epoch, median in ((2, 1.0), (20, late))
    ]
    return [stale_row(observed, "fig11", graphs="wikipedia email-eu-core")]


def fixed(experiment: str, *runs: tuple, **fields) -> list[Row]:
    """Rows of (graph, model, setting, accuracy, saved), with one without stale rows beside each."""
    whole = {(graph, model, "without"): (0.8, 0.0) for graph, model, *_ in runs}
    return [learned(whole | {run[:3]: run[3:] for run in runs}, experiment, **fields)]


STACK = ("stack", "dysat", "0.3D", 0.724, 0.855)
MOVIE = ("movie", "dysat", "0.3D", 0.79, 0.5)
HALF = ("stack", "dysat", "0.5D", 0.8, 0.8)
FAR = ("wikipedia", "dysat", "0.1D", 0.7, 0.9), ("wikipedia", "dysat", "0.9D", 0.7, 0.1)
STALE = [
    ("fig11-movie-10", "S", lambda: shares("fig11-movie-10", 0.85)),
    ("fig11-movie-100", "S", lambda: shares("fig11-movie-100", 0.97)),
    ("s52-distance-shrinks", "S", lambda: distances(0.5)),
    ("s52-distance-shrinks", "O", lambda: distances(2.0)),
    ("s52-stack-03d", "S", lambda: fixed("table2", STACK)),
    ("s52-stack-03d", "O", lambda: fixed("table2", (*STACK[:3], 0.9, 0.855))),
    ("s52-stack-03d", "S",  # whole trainings stand for shorter ones
     lambda: fixed("table2", (*STACK[:3], 0.9, 0.855), epochs=20, id="short")
     + fixed("table2", STACK, epochs=100)),
    ("s52-movie-05d", "S",
     lambda: fixed("table2", STACK, MOVIE, ("movie", "dysat", "0.5D", 0.7, 0.81))),
    ("s52-theta-monotone", "S", lambda: seeds((0.2,), (0.1, 0.5))),
    ("s52-theta-monotone", "O", lambda: seeds((0.2,), (0.5, 0.1))),
    ("s52-theta-monotone", "S", lambda: seeds((0.02, 0.021, 0.019, 0.02, 0.022), (0.1, 0.5))),
    ("tab2-acc-amazon", "s",
     lambda: seeds((0.02, 0.021, 0.019, 0.02, 0.02), (0.1, 0.5), "amazon-magazine")),
    ("tab2-acc-amazon", "O",
     lambda: seeds((-0.02, -0.021, -0.019, -0.02, -0.02), (0.1, 0.5), "amazon-magazine")),
    ("tab2-comm-amazon", "O", lambda: fixed("table2", *FAR)),
    ("s733-comm-range", "S", lambda: fixed(
        "table3", ("wikipedia", "dysat", "0.5D", 0.79, 0.33),
        ("email-eu-core", "dysat", "adaptive", 0.79, 0.97),
        ("stack", "dysat", "adaptive", 0.1, 0.0))),
    ("s733-adaptive-mean", "S",
     lambda: fixed("table3", ("email-eu-core", "dysat", "adaptive", 0.784, 0.8))),
    ("s733-adaptive-mean", "s",
     lambda: fixed("table3", ("email-eu-core", "dysat", "adaptive", 0.7, 0.8))),
    ("s733-static-spread", "S",
     lambda: fixed("table3", HALF, ("movie", "mpnn_lstm_bare", "0.5D", 0.8, 0.33))),
    ("s733-static-spread", "s",
     lambda: fixed("table3", HALF, ("movie", "mpnn_lstm_bare", "0.5D", 0.8, 0.6))),
    ("s733-static-epinion", "S",
     lambda: fixed("table3", ("epinions", "dysat", "0.5D", 0.722, 0.697))),
]  # fmt: skip

EVERY = [*RACES, *STALE]


@pytest.mark.parametrize(
    ("name", "glyph", "rows"), EVERY, ids=[f"{name}-{n}" for n, (name, *_) in enumerate(EVERY)]
)
def test_a_rule_by_each_of_its_conditions(name, glyph, rows) -> None:
    assert judge(name, rows()).glyph == glyph


@pytest.mark.parametrize("name", sorted(n for n in CLAIMS if n.startswith(("tab2-", "tab3-"))))
def test_tables_hold_at_their_printed_numbers_alone(name) -> None:
    """Whole tables, each within half a point of accuracy or five percent of the traffic."""
    assert find(name, printed(name)).holds is True
    assert find(name, printed(name, points=-0.03, share=-0.06)).holds is False
    part = {"tab2": "0.1D", "tab3": "adaptive"}[name[:4]]
    assert find(name, printed(name, only=(part,))).holds is False
