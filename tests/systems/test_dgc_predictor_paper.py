"""Figures 7 and 16 of DGC: what is chosen, drawn and claimed; nothing is timed here."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from dgc_rows import but, judged, kept, row_of, seen, without
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_data import tiny_sequence

from dgbench.harness.claims.ledger import load_ledger
from dgbench.kernels_cuda.supergraph import build_supergraph
from dgbench.lab.table import Table, number
from dgbench.systems.base import Measurement
from dgbench.systems.dgc import PAPER
from dgbench.systems.dgc.checks import workload as checks
from dgbench.systems.dgc.experiments import fig7, fig16
from dgbench.systems.dgc.experiments.settings import MODELS
from dgbench.systems.dgc.study import GUESSES, WHOLE
from dgbench.systems.dgc.supergraph import ChunkStatistics

ANSWERED = (*fig7.Fig7.claims, *fig16.Fig16.claims)
CLAIMS = {claim.id: claim for claim in load_ledger(PAPER.ledger) if claim.id in ANSWERED}


# --- Figure 7 -------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(1, 20), st.integers(0, 50), st.integers(1, 9)), min_size=1),
    st.integers(1, 20),
)
@settings(max_examples=60, deadline=None)
def test_four_chunks_are_of_full_size_and_extreme(sizes, cap):
    vertices, edges, sequences = (torch.tensor(column) for column in zip(*sizes, strict=True))
    s = ChunkStatistics(vertices, edges, edges, sequences, vertices)
    found = fig7.four(s, cap)
    assert len(found) == 4
    full = [i for i, (v, _, _) in enumerate(sizes) if v >= fig7.FULL_SIZE * cap]
    pool = full if len(full) >= 4 else found
    assert set(found) <= set(pool)
    if len(full) >= 4:
        assert edges[found[0]] == min(edges[i] for i in full)
        assert edges[found[1]] == max(edges[i] for i in full)
        assert s.padded[found[2]] == min(s.padded[i] for i in full)
        assert s.padded[found[3]] == max(s.padded[i] for i in full)


def turns_of(times: list[float], padded: list[float], turns: int = 7) -> torch.Tensor:
    """Seven turns of four chunks: structure, packed and padded time encoder, a little noisy."""
    one = torch.tensor([[0.5, packed, long] for packed, long in zip(times, padded, strict=True)])
    noise = 1 + 0.01 * torch.arange(turns)[:, None, None]
    return one.double() * noise


def fig7_row(padded=(1.5, 1.5, 1.5, 7.5), dataset="wikipedia", **fields):
    found = Measurement()
    for model in MODELS:
        fig7._observe(found, model, turns_of([1.5, 1.5, 1.5, 2.5], list(padded)))
    return row_of("fig7", {"dataset": dataset}, found.observations, **fields)


def test_the_spread_is_that_of_whole_chunks():
    found = Table.of([fig7_row()]).where(model="dysat")
    packed = found.where("divergence", format="packed").one().of
    assert packed.value == pytest.approx(1.5)
    assert packed.low <= 1.5 <= packed.high
    assert found.where("divergence", format="padded").one().value == pytest.approx(4.0)
    last = found.where("operation_time", of="most padded rows", phase="padded").one()
    assert last.value == pytest.approx(7.5 * 1.03)


def test_figure_7_draws_every_chunk_and_says_what_failed(wording):
    rows = [fig7_row(), row_of("fig7", {"dataset": "email-eu-core"}, status="oom", reason="9 GiB")]
    points = fig7.points(rows)
    assert len(points) == 1 + len(MODELS) * 2 * len(fig7.CHOSEN)
    assert [p["failed"] for p in points if "failed" in p] == ["oom: 9 GiB"]
    wording(fig7.Fig7().answer(rows))
    assert fig7.Fig7().answer([]) == ""


def test_every_graph_and_model_is_a_reading_of_the_gap_of_chunk_times():
    claim = CLAIMS["dgc-fig7-chunk-time-gap"]
    found = checks.time_gap(claim, [fig7_row()])
    assert len(found.readings) == len(MODELS)
    one = found.readings["DySAT on Wikipedia"]
    assert one.measured == pytest.approx(4.0)
    assert (one.direction, one.undecided, one.target) == (True, False, 8.0)
    assert judged(claim, [fig7_row()]).glyph == "s"
    assert judged(claim, [fig7_row(padded=(1.5, 1.5, 1.5, 1.5))]).glyph == "u"
    other = fig7_row(dataset="email-eu-core", padded=(1.5, 1.5, 1.5, 15.5))
    both = judged(claim, [fig7_row(), other])  # no largest one is picked
    assert (both.glyph, len(set(both.readings.values()))) == ("s", 2)
    twin = fig7_row(dataset="movie", data={"twin": True}, padded=(1.5, 1.5, 1.5, 99.0))
    assert set(checks.time_gap(claim, [twin, fig7_row()]).readings) == set(found.readings)
    assert checks.time_gap(claim, []).empty
    rounds = [
        fig7_row(device="cuda", padded=(1.5, 1.5, 1.5, 15.4 + n / 10), round=n, id=f"r{n}")
        for n in range(1, 6)
    ]
    assert judged(claim, rounds).glyph == "R"
    assert judged(claim, rounds[:1]).glyph == "S"  # one process of five


# --- Figure 16 ------------------------------------------------------------------------------------


def fig16_row(model="tgcn_2layer", error=0.05, mlp=1.1, vertices=1.8, **fields):
    observed = []
    for encoder in ("structure", "time", WHOLE):
        for guess in GUESSES:
            off = error if guess == "mlp" else 2 * error
            dims = {"low": 0.9 * off, "high": 1.1 * off, "phase": encoder, "method": guess}
            observed.append(seen("prediction_error", off, **dims))
        observed.append(seen("prediction_error", 0.02, phase=encoder, method="measured"))
    for dataset in ("wikipedia", "email-eu-core"):
        for name in fig16.WORKLOADS:
            factor = {"mlp": mlp, "vertices": vertices}.get(name, 1.2)
            observed.append(seen("divergence", factor, method=name, dataset=dataset))
            observed.append(seen("imbalance", math.sqrt(factor), method=name, dataset=dataset))
        for name in fig16.FUSED:
            dims = {"method": name, "dataset": dataset, "format": "fused"}
            observed += [seen("divergence", 1.3, **dims), seen("imbalance", 1.2, **dims)]
    observed += [
        seen("training_chunks", 400),
        seen("hidden_size", 3, of="layers"),
        seen("hidden_size", 256, of="units"),
        seen("epochs", 100),
        seen("chunks", 100, of="tested"),
    ]
    return row_of("fig16", {"model": model, "ranks": 4}, observed, **fields)


def test_figure_16_draws_every_guess_and_graph(wording):
    rows = [fig16_row(), row_of("fig16", {"model": "dysat", "ranks": 4}, status="time")]
    errors = fig16.error_points(rows)
    assert len(errors) == 3 * (len(GUESSES) + 1) + 1
    assert {p["series"] for p in errors if "failed" not in p} == {
        *fig16.GUESS_TITLES.values(),
        "measured again",
    }
    assert len(set(fig16.GUESS_TITLES.values())) == len(GUESSES)
    parts = fig16.divergence_points(rows)
    assert len(parts) == 2 * (len(fig16.WORKLOADS) + len(fig16.FUSED))
    assert {p["x"] for p in parts} == {"Wikipedia", "email-Eu"}
    brief = fig16_row()  # `quick` has no time to run workers as one
    brief.observed = [one for one in brief.observed if one.dims.get("format") != "fused"]
    apart = [p for p in parts if p["panel"] == "T-GCN model"]
    assert fig16.divergence_points([brief]) == apart
    wording(fig16.Fig16().answer(rows))
    assert fig16.Fig16().answer([]) == ""


def test_the_error_can_be_below_the_bound_above_it_and_open(wording):
    claim = CLAIMS["dgc-fig16-mlp-error"]
    assert claim.bound == "upper"
    good = checks.error(claim, [fig16_row(error=0.02), fig16_row("dysat", error=0.04)])
    assert {name: round(one.measured, 6) for name, one in good.readings.items()} == {
        "the paper's inputs": 8.0,
        "with lengths of sequences": 4.0,
    }
    for one in good.readings.values():
        wording(one.reason)
    told = judged(claim, [fig16_row(error=0.02)])
    assert (told.glyph, told.source) == ("S", "timed")
    assert judged(claim, [fig16_row(error=0.02), fig16_row("dysat", error=0.3)]).glyph == "O"
    assert judged(claim, [fig16_row(error=0.07)]).glyph == "v"
    open_one = checks.error(claim, [fig16_row(error=0.1)]).readings["with lengths of sequences"]
    assert open_one.low < 10 < open_one.high
    assert checks.error(claim, []).empty


def test_the_divergence_can_point_either_way(wording):
    for name, value in (("mlp", 1.1), ("vertices", 1.8)):
        claim = CLAIMS[f"dgc-fig16-divergence-{name}"]
        found = checks.divergence(claim, [fig16_row()])
        assert found.measured == pytest.approx(value)
        assert found.direction
        assert found.target == claim.value["mean"]
        other = checks.divergence(claim, [fig16_row(mlp=2.0)])
        assert not other.direction
        wording(other.reason)
        assert checks.divergence(claim, []).measured is None


def test_the_training_is_said_as_it_was():
    claim = CLAIMS["dgc-s64-mlp-training"]
    found = checks.training(claim, [fig16_row()])
    assert found.measured["chunks"] == 400
    assert (found.holds, found.direction) == (False, True)
    many = but(fig16_row(), "training_chunks", 50_000)
    assert checks.training(claim, [many]).holds
    other = checks.training(claim, [but(many, "epochs", 10)])
    assert (other.holds, other.direction) == (False, False)
    earlier = but(fig16_row(), "chunks", 300, of="trained")  # a row of earlier code
    assert checks.training(claim, [without(earlier, "training_chunks")]).measured["chunks"] == 300
    assert checks.training(claim, []).measured is None


def test_chunks_are_dealt_out_by_each_workload_model():
    data = tiny_sequence(nodes=12, snapshots=8, edges=30, seed=2)
    part = fig16._Parted("tiny", data, build_supergraph(data.topology[:-1]))
    found = SimpleNamespace(workload=lambda name, s, fused=False: s.vertices.double() + 1)
    seconds = part.cut.statistics.vertices.double() ** 2
    out = Measurement()
    part.balances(out, found, seconds)
    for name in fig16.WORKLOADS:
        worker = part.assigned(found, seconds, name)
        loads = [float(seconds[worker == m].sum()) for m in range(fig16.WORKERS)]
        mean = sum(loads) / len(loads)
        wanted = max(loads) / max(min(loads), 1e-3 * mean)
        row, dims = kept(out, "fig16", {}), {"method": name, "dataset": "tiny"}
        assert number(row, "divergence", **dims) == pytest.approx(wanted)
        assert number(row, "imbalance", **dims) == pytest.approx(max(loads) / mean)
    timer = SimpleNamespace(
        measure=lambda chunks, passes: torch.tensor([[c.rows, 1.0] for c in chunks]).double()
    )
    part.fused(out, found, timer, seconds)
    worker = part.assigned(found, seconds, "vertices")
    rows = torch.bincount(worker[part.cut.chunk.long()].long(), minlength=fig16.WORKERS) + 1
    wanted = float(rows.max() / rows.double().mean())
    fused = {"method": "vertices", "dataset": "tiny", "format": "fused"}
    assert number(kept(out, "fig16", {}), "imbalance", **fused) == pytest.approx(wanted)
    assert {cut.source for cut in part.others("smoke")} == {"tiny"}
    assert len(part.others("full")) > 10 * len(part.others("quick"))


def test_cells_are_few_and_cheap_and_presets_differ():
    for experiment in (fig7.Fig7(), fig16.Fig16()):
        quick = experiment.cells("quick", "cpu")
        assert len(quick) == 1
        assert len(experiment.cells("full", "cpu")) > 1
        assert all(cell.paper == "dgc" for cell in quick)
        assert experiment.figures()
    wanted = CLAIMS["dgc-s64-mlp-training"].value["chunks"]
    assert fig16.SIZES["full"].train == fig16.SIZES["paper"].train == wanted
    assert fig16.SIZES["paper"].train == CLAIMS["dgc-s64-mlp-training"].value["chunks"]
    assert fig16.SIZES["full"].test == CLAIMS["dgc-fig16-mlp-error"].workload["n_chunks"]
    assert fig16.SIZES["full"].epochs == CLAIMS["dgc-s64-mlp-training"].value["epochs"]
