"""Races of operators: every family runs, compares its results, and says what its claims rest on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from msgspec import structs
from paper_rows import row_of

from dgbench.datasets import twins
from dgbench.harness.claims.ledger import load_ledger
from dgbench.harness.claims.verdict import decide
from dgbench.harness.store.standing import judged
from dgbench.kernels_cuda.temporal_store import TemporalStore
from dgbench.lab.evidence import conditions
from dgbench.lab.experiment import RunContext
from dgbench.lab.judging import judging
from dgbench.lab.result_checks import equal
from dgbench.lab.table import observation
from dgbench.runtime.errors import UnsupportedError
from dgbench.systems.operators import PAPER
from dgbench.systems.operators.experiments import ingest
from dgbench.systems.operators.race import OURS, OperatorCase, OperatorRace

CONTEXT = RunContext("cpu", "smoke", 1)
EXPERIMENTS = {one.name: one for one in PAPER.experiments if isinstance(one, OperatorRace)}
CLAIMS = {claim.id: claim for claim in load_ledger(PAPER.ledger)}


def spoiled(result: Any) -> Any:
    """The same with its first tensor changed."""
    if isinstance(result, torch.Tensor):
        return result * 1.01 if result.is_floating_point() else result + 1
    if isinstance(result, np.ndarray):
        return result + 1
    if isinstance(result, list | tuple):
        return type(result)([spoiled(result[0]), *result[1:]])
    return SPOILED[type(result).__name__](result)


SPOILED: dict[str, Callable[[Any], Any]] = {
    "Difference": lambda d: dataclasses.replace(d, added=d.added[:, 1:]),
    "Csr": lambda c: dataclasses.replace(c, indices=(c.indices + 1) % c.num_cols),
    "EdgeSample": lambda s: dataclasses.replace(
        s, layers=(dataclasses.replace(s.layers[0], neighbours=s.layers[0].neighbours + 1),)
    ),
    "SubgraphSample": lambda s: dataclasses.replace(s, vertices=s.vertices + 1000),
    "Sample": lambda s: dataclasses.replace(s, eids=s.eids + 1),
    "TemporalStore": lambda _: TemporalStore(200, undirected=True),
}


@pytest.mark.parametrize(
    ("name", "when"),
    [*((name, "before timing") for name in EXPERIMENTS), ("aggregate", "after timing")],
)
def test_a_spoiled_operator_fails_its_check(name: str, when: str, monkeypatch) -> None:
    experiment = EXPERIMENTS[name]
    cell = experiment.cells("smoke", "cpu")[0]
    if cell.unavailable:
        pytest.skip(cell.unavailable)
    made = experiment.case(cell.params, "smoke", "cpu")
    right, last = made.calls[OURS], 3  # of two turns, and one before them

    def call(turn: int) -> Any:
        result = right(turn)
        return spoiled(result) if turn == (0 if when == "before timing" else last) else result

    case = dataclasses.replace(made, calls={**made.calls, OURS: call})
    monkeypatch.setattr(type(experiment), "case", lambda self, params, preset, device: case)
    found = experiment.run(cell, CONTEXT)
    wrong = [check for check in found.checks if not check.passed]
    assert [(check.system, check.part.partition(",")[0]) for check in wrong] == [(OURS, when)]


def test_a_twin_is_taken_in_and_one_that_misses_an_edge_is_wrong(monkeypatch) -> None:
    experiment = ingest.Ingest()
    (cell,) = experiment.cells("smoke", "cpu")
    found = experiment.run(cell, CONTEXT)
    assert [check.passed for check in found.checks] == [True] * 3
    fields = structs.asdict(found)
    row = row_of(cell, observed=fields.pop("observations"), **fields)
    assert experiment.answer([row]).endswith(" bytes each.")
    fill = ingest.fill

    def misses_the_first(store, name, scale) -> float:
        whole = twins.stream
        batches = [(src[1:], dst[1:]) for src, dst in whole(name, scale, chunk=ingest.BATCH)]
        with monkeypatch.context() as patch:
            patch.setattr(ingest.twins, "stream", lambda *_, **__: iter(batches))
            return fill(store, name, scale)

    monkeypatch.setattr(ingest, "fill", misses_the_first)
    assert [check.passed for check in experiment.run(cell, CONTEXT).checks] == [True, False, True]


class Doubling(OperatorRace):
    """Ours doubles a tensor; its peers do so, too slowly, wrongly or not at all."""

    name = "doubling"
    title = "Doubling"
    question = "Does it double?"
    workloads = {None: ({"size": 3}, {"size": 4})}
    label = "{size} numbers"
    sweep = ("size", "numbers")
    peers: dict[str, Callable[[int], Any]] = {}

    def case(self, params, preset, device) -> OperatorCase:
        x = torch.arange(params["size"])
        return OperatorCase(
            calls={OURS: lambda _: x + x, **self.peers},
            check=lambda name, turn, found: equal("sums", found, 2 * x, against="product"),
            left_out={"absent": "not installed"},
            work=(("throughput", {"of": "numbers"}, params["size"]),),
        )


def test_peers_that_fail_or_are_wrong_or_slow_are_left_out_with_a_note(monkeypatch) -> None:
    def fails(_: int) -> Any:
        raise OSError("its library does not load\nand more")

    def right(_: int) -> Any:
        return torch.arange(3) * 2

    clock = iter(float(n) for n in range(1, 10_000))
    race = Doubling()
    race.peers = {"fails": fails, "wrong": lambda _: torch.zeros(3), "right": right}
    found = race.run(race.cells("smoke", "cpu")[0], CONTEXT)
    assert found.notes == [
        "absent is left out: not installed",
        "fails is left out: OSError: its library does not load",
        "wrong is left out: sums differ from the product: 0.67 of 3",
    ]
    assert {one.dims.get("baseline") for one in found.observations} == {None, "right"}
    assert [check.system for check in found.checks] == [OURS, "right", OURS, "right"]
    race.clock = lambda: 9.0 * next(clock)
    with pytest.raises(UnsupportedError, match="no peer runs here"):
        race.run(race.cells("smoke", "cpu")[0], CONTEXT)


def rows_of_ratios(*ends: tuple[float, float, float]) -> list:
    """A row of the aggregation with a speed-up (value, low, high) for each of these."""
    cells, rows = EXPERIMENTS["aggregate"].cells("full", "cpu"), []
    for cell, (value, low, high) in zip(cells, ends, strict=False):
        one = observation("speedup", value, low=low, high=high, method=OURS, baseline="DGL")
        rows.append(row_of(cell, len(rows), observed=[one]))
    return rows


FAST = (2.0, 1.8, 2.2)


@pytest.mark.parametrize(
    ("ends", "bar", "agreement"),
    [([FAST, (1.2, 1.1, 1.3)], 1.0, "value"), ([FAST, (1.2, 0.9, 1.5)], 1.0, "undecided"),
     ([FAST, (1.04, 1.01, 1.07)], 1.0, "undecided"),  # inside the noise floor
     ([FAST, (0.97, 0.96, 0.98)], 1.0, "undecided"), ([FAST, (0.8, 0.7, 0.9)], 1.0, "opposite"),
     ([FAST, (0.8, 0.7, 0.9), (0.79, 0.5, 1.1)], 1.0, "opposite"),
     ([(3.0, 2.8, 3.2), (2.7, 2.66, 2.8)], 2.5, "value"),
     ([(3.0, 2.8, 3.2), (1.5, 1.4, 1.6)], 2.5, "opposite"),
     ([(3.0, 2.8, 3.2), (2.6, 2.4, 2.7)], 2.5, "undecided")],
)  # fmt: skip
def test_a_bar_holds_where_every_interval_lies_above_it(ends, bar, agreement) -> None:
    claim = structs.replace(CLAIMS["operators-aggregate-best-peer"], value=bar)
    rows, floor = rows_of_ratios(*ends), 0.05
    with judging(floor) as context:
        finding = PAPER.checks[claim.id](claim, rows)
    found = conditions(claim, finding, rows, context.reads, PAPER)
    verdict = decide(claim, finding, found, floor=floor)
    assert (verdict.agreement, found.source, found.device) == (agreement, "timed", "cpu")
    assert verdict.agreement == "undecided" or verdict.strength == "weak"  # of one process each
    assert decide(claim, finding, found, floor=None).glyph == "u"


def test_a_wrong_result_makes_rows_of_its_own_operator_void_and_no_others() -> None:
    cells = [EXPERIMENTS[name].cells("smoke", "cpu")[0] for name in ("scan", "attention")]
    good = equal("sums", 1, 1, against="product")
    rows = [row_of(cell, number, checks=[good]) for number, cell in enumerate(cells)]
    wrong = row_of(cells[0], 2, status="check", reason="outputs deviate")
    assert [row.status for row in judged([*rows, wrong])] == ["void", "ok", "check"]
