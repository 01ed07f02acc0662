"""Claims of PiPAD on races of its published form, by one made row for each condition of a rule.

What kept, disturbed and synthetic rows decide is in `tests/golden/pipad`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest
from paper_rows import judged

from dgbench.harness.claims.ledger import load_ledger
from dgbench.harness.store.row import Row
from dgbench.lab.result_checks import ResultCheck
from dgbench.lab.table import Observation, observation
from dgbench.systems.pipad import PAPER
from dgbench.systems.pipad.experiments import epochs
from dgbench.systems.pipad.experiments.settings import MODELS
from dgbench.systems.pipad.ladders import BARE, PUBLISHED, REUSED, STAGES

CLAIMS = {claim.id: claim for claim in load_ledger(PAPER.ledger)}
FLOOR = 0.01
"""Noise floor of made-up runs; without one no time decides anything."""
TIMES = {"pygt": 12.0, "pygt-r": 9.0, "pygt-g": 8.0, BARE: 6.0, REUSED: 4.0, PUBLISHED: 2.0,
         "pipad": 1.0}  # fmt: skip
LARGE, SMALL = "flickr", ("pems08", "covid19-england")
GRAPHS = (LARGE, *SMALL)
SPEED = (
    "abs-speedup-range", "fig10-speedup-range-pygt", "fig10-avg-evolvegcn", "fig10-avg-mpnn-lstm",
    "fig10-avg-t-gcn", "fig10-pipad-best", "s52-evolvegcn-vs-pygtg",
)  # fmt: skip
PASSED = ResultCheck(of="outputs", against="oracle", gap=0.0, tolerance=1e-5, compared=1)


def made(
    experiment: str, params: dict[str, Any], found: Iterable[Observation] = (), **fields: Any
) -> Row:
    """A row that observed this; `fields` go before all else."""
    plain = {
        "id": f"{experiment}-{'-'.join(map(str, params.values()))}-{fields.get('round', 1)}",
        "run": "test", "paper": "pipad", "experiment": experiment, "params": params,
        "group": f"{params.get('dataset')}/{params.get('model')}", "preset": "quick",
        "checks": [PASSED], "observed": list(found),
    }  # fmt: skip
    return Row(**(plain | fields))


def race_rows(
    seconds: Mapping[str, float], dataset: str, model: str, experiment: str = "fig10",
    metric: str = "end_to_end_time", **more: Any,
) -> list[Row]:  # fmt: skip
    """Rows of five rounds by system, with a permille of noise."""
    return [
        made(
            experiment, {"dataset": dataset, "model": model, "system": system, **more},
            [observation(metric, time * (1 + 0.001 * (number % 3)))], round=number + 1,
        )
        for number in range(5)
        for system, time in seconds.items()
    ]  # fmt: skip


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


@pytest.mark.parametrize(
    ("name", "glyph", "rows"), TRAINED, ids=[f"{name}-{n}" for n, (name, *_) in enumerate(TRAINED)]
)
def test_a_rule_by_each_of_its_conditions(name, glyph, rows) -> None:
    assert judged(PAPER, CLAIMS[f"pipad-{name}"], rows(), FLOOR)[1].glyph == glyph
