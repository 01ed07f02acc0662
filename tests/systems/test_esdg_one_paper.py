"""ESDG's memory and ablation experiments and their checks: each can hold and can fail."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Any

import pytest
from msgspec.structs import replace
from paper_rows import answered_by

from dgbench.harness.claims.evaluate import evaluate
from dgbench.harness.claims.ledger import load_ledger
from dgbench.harness.store.row import Row
from dgbench.lab.result_checks import equal
from dgbench.models import build_model
from dgbench.systems.base import RunContext
from dgbench.systems.esdg import PAPER
from dgbench.systems.esdg import claims as table
from dgbench.systems.esdg.checks import checkpoint
from dgbench.systems.esdg.experiments import ablation, memory
from dgbench.systems.esdg.experiments.settings import BY_NAME, MODELS, RANKS
from dgbench.systems.esdg.plan import StepCost

CHECKS = answered_by(table.TABLE, checkpoint)

CLAIMS = {claim.id: claim for claim in load_ledger(PAPER.ledger) if claim.id in CHECKS}
SMOKE = RunContext("cpu", "smoke", 1, budget_s=0.01)


@pytest.fixture(scope="module", autouse=True)
def private_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DGBENCH_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.delenv("DGBENCH_DATA", raising=False)
        yield


def row(experiment: str, params: dict[str, Any], **fields: Any) -> Row:
    name = f"{experiment}-{'-'.join(map(str, params.values()))}"
    base = {
        "id": name,
        "paper": "esdg",
        "experiment": experiment,
        "device": "cpu",
        "params": params,
        "checks": [equal("counters", 1, 1, against="made up")],
    }
    return Row(**(base | fields))


def sized() -> list[Row]:
    return [
        row("memory", {"part": "sizes", "model": model}, counters=memory.sizes(model))
        for model in MODELS
    ]


def swept(model: str = "cd_gcn", **more: Any) -> Row:
    counts = (1, 4, 16)
    counters: dict[str, int] = {"steps": 32, "turns": 6, "peak layout": 1000}
    values: dict[str, float] = {"formula layout": 990.0}
    for n in counts:
        for name, brought in ((f"{n}", 40), (f"paper {n}", 64)):
            counters |= {f"peak {name}": 1000 // n, f"brought {name}": brought}
            values |= {f"planned {name}": 1000 / n, f"formula {name}": 900 / n}
    for n in counts[1:]:
        values |= {f"gain paper {n}": 1.2, f"low paper {n}": 1.1, f"high paper {n}": 1.3}
        values |= {f"gain {n}": 1.1, f"low {n}": 1.0, f"high {n}": 1.2}
    params = {"part": "sweep", "dataset": "amlsim", "model": model}
    found = row("memory", params, counters=counters, values=values, data={"twin": True},
                deviation={"output": 1e-7})  # fmt: skip
    found.counters.update({k: v for k, v in more.items() if k in counters})
    found.values.update({k: v for k, v in more.items() if k in values})
    return found


def budgeted(**more: int) -> Row:
    counters = {}
    for share, blocks in zip(memory.SHARES, (2, 5), strict=True):
        name = f"{share:g}"
        counters |= {f"budget {name}": 1000, f"blocks {name}": blocks, f"planned {name}": 950,
                     f"peak {name}": 990, f"fewer {name}": 1200}  # fmt: skip
    params = {"part": "budget", "dataset": memory.REAL_GRAPH, "model": "tm_gcn"}
    return row("memory", params, counters=counters | more)


def precomputed(model: str, gain: float = 1.2, **more: float) -> Row:
    values = {}
    for name in ("precompute", "plain, precompute"):
        values |= {f"gain {name}": gain, f"low {name}": 0.95 * gain, f"high {name}": 1.05 * gain}
    params = {"dataset": "amlsim", "model": model, "kind": "precompute"}
    return row("ablation", params, values=values | more, deviation={"output": 1e-7})


def find(claim: str, rows: list[Row]):
    return CHECKS[claim](CLAIMS[claim], rows)


def test_every_claim_has_its_check_and_asks_for_rows():
    assert len(CHECKS) == len(CLAIMS) == 7
    for claim in CLAIMS:
        found = find(claim, [])
        assert found.measured is None
        assert "did not run" in found.reason


# Section 3.1 and 6.2, counted


def test_bytes_at_the_papers_sizes_follow_the_formula():
    found = memory.sizes("cd_gcn")
    n, t, nnz = 1_000_000, 200, 124_000_000
    assert found["formula amlsim 1 whole"] == 20 * nnz + 160 * n * t
    # Of 200 steps 128 ranks have two at most.
    assert found["formula amlsim 128 whole"] == pytest.approx(2 * (20 * nnz / t + 160 * n))
    for ranks in RANKS:
        best, blocks = (found[f"formula amlsim {ranks} {key}"] for key in ("best", "blocks"))
        size = ceil(ceil(t / blocks) / ranks)
        border = 96 * n * blocks / ranks
        assert best == int(size * (20 * nnz / t + 160 * n) + border)
        fewest = found[f"formula amlsim {ranks} fewest"]
        assert 1 <= fewest <= blocks
    assert found["torch amlsim 1 whole"] > 5 * found["formula amlsim 1 whole"]


def test_blocks_need_less_and_more_ranks_need_less():
    model = build_model("tm_gcn", feature_dim=2, hidden_dim=6, window=15)
    cost = memory.cost_of("ours", model)
    needs = [memory.need(cost, model, 10_000, 200, 10**6, 4, p) for p in (1, 2, 4)]
    assert needs == sorted(needs, reverse=True)
    assert memory.need(StepCost(20, 0), model, 0, 10, 100, 1, 1, checkpoint=False) == 2000
    assert memory.need(StepCost(20, 0), model, 0, 10, 100, 5, 1) == 400


def shrunk(monkeypatch, factor: int) -> list[Row]:
    """The same sizes on devices `factor` times smaller."""
    monkeypatch.setattr(memory, "DEVICE_BYTES", memory.DEVICE_BYTES // factor)
    return sized()


def test_without_checkpoint_most_fit_by_the_formula_and_would_not_on_smaller_devices(monkeypatch):
    rows = sized()
    found = find("esdg-s31-oom-below-8", rows)
    assert found.holds is False
    assert found.evidence == "projected"
    assert found.measured.startswith("0 of 12")
    assert find("esdg-s62-baseline-oom-node", rows).holds is False
    rows = shrunk(monkeypatch, 8)
    assert find("esdg-s31-oom-below-8", rows).holds is True
    assert find("esdg-s62-baseline-oom-node", rows).direction is True
    assert evaluate(PAPER, rows).find("esdg-s31-oom-below-8")[1].verdict == "direction only"


# Sections 3.1 and 3.2, from sweeps

CASES: dict[str, tuple[Callable[..., list[Row]], dict[str, Any]]] = {
    "esdg-s31-block-memory": (lambda **m: [swept(**m)], {"peak paper 4": 300}),
    "esdg-s32-transfer-twice": (lambda **m: [swept(**m)], {"brought paper 16": 63}),
    "esdg-s62-bsize-tuned": (lambda **m: [budgeted(**m)], {"fewer 0.5": 900}),
    "esdg-s31-fewer-blocks-faster": (
        lambda **m: [swept(**m)],
        {"gain paper 4": 0.8, "low paper 4": 0.7, "high paper 4": 0.9},
    ),
    "esdg-s55-precompute": (
        lambda **m: [precomputed("tm_gcn"), precomputed("cd_gcn", **m)],
        {"gain precompute": 0.8, "low precompute": 0.7, "high precompute": 0.9},
    ),
}


@pytest.mark.parametrize("claim", CASES)
def test_a_check_holds_and_fails(claim):
    rows, wrong = CASES[claim]
    good = find(claim, rows())
    assert good.holds is True, good.reason
    assert not good.undecided
    bad = find(claim, rows(**wrong))
    assert bad.holds is False
    assert not bad.undecided


def test_a_budget_that_is_not_kept_is_no_tuning():
    assert find("esdg-s62-bsize-tuned", [budgeted(**{"peak 0.1": 1200})]).holds is False
    assert find("esdg-s62-bsize-tuned", [budgeted(**{"planned 0.1": 1001})]).holds is False


def test_times_inside_their_noise_decide_nothing():
    wide = {"low paper 16": 0.9}
    assert find("esdg-s31-fewer-blocks-faster", [swept(**wide)]).undecided
    assert find("esdg-s55-precompute", [precomputed("cd_gcn", 1.01)]).undecided
    gpu = replace(precomputed("cd_gcn"), device="cuda")
    assert find("esdg-s55-precompute", [gpu]).evidence == "measured"
    assert find("esdg-s55-precompute", [precomputed("cd_gcn")]).evidence == "analogue"


# Real, small


def run(experiment: Any, **wanted: str) -> tuple[Any, Row]:
    cells = [c for c in experiment.cells("smoke", "cpu") if wanted.items() <= c.params.items()]
    cell = cells[0]
    found = experiment.run(cell, SMOKE)
    made = row(experiment.name, cell.params, group=cell.group, values=found.values,
               counters=found.counters, deviation=found.deviation, data=found.data,
               samples=found.samples)  # fmt: skip
    return found, made


def test_memory_runs_and_is_drawn_and_judged(monkeypatch):
    rows = sized() + [run(memory.Memory(), part=part)[1] for part in ("sweep", "budget")]
    for figure in memory.Memory().figures():
        assert figure.points(rows), figure.name
    for claim in ("esdg-s31-block-memory", "esdg-s32-transfer-twice", "esdg-s62-bsize-tuned"):
        assert find(claim, rows).measured is not None
    assert find("esdg-s32-transfer-twice", rows).measured == 2.0
    assert find("esdg-s62-bsize-tuned", rows).holds is True
    answer = memory.Memory().answer(rows)
    assert "blocks take" in answer
    assert "12 of 12 configurations fit on fewer than 8" in answer
    broken = replace(rows[3], status="oom", reason="21.9 of 24.0 GiB")
    assert memory.peak_points([broken])[0]["failed"].startswith("oom")
    assert memory.Memory().answer([]) == ""


def test_ablation_runs_and_is_drawn_and_judged():
    rows = [run(ablation.Ablation(), kind=kind)[1] for kind in ("ladder", "precompute")]
    points = ablation.step_points(rows)
    assert [p["technique"] for p in points] == ["", *ablation.LADDER]
    assert points[1]["gain"] > 0
    bounds = {"low lean": 0.9, "high lean": 1.2, "low fallback": 1.1, "high fallback": 1.2}
    known = replace(rows[0], values=rows[0].values | bounds)
    inside = {p["technique"]: p.get("same") for p in ablation.step_points([known])}
    assert inside["lean"]
    assert not inside["fallback"]
    ladder = rows[0].counters
    assert ladder["bytes checkpoint"] == 2 * ladder[f"bytes {ablation.OFF}"]
    assert ladder["bytes lean"] < ladder["bytes precompute"]
    assert ladder["bytes fallback"] < ladder["bytes lean"]
    assert ladder["bytes prefetch"] == ladder["bytes fallback"]
    assert ladder["planned checkpoint"] < ladder[f"planned {ablation.OFF}"]
    assert ablation.Ablation().answer(rows)
    assert find("esdg-s55-precompute", rows).measured is not None
    failed = replace(rows[0], status="time", reason="stopped")
    assert ablation.step_points([failed])[0]["failed"] == "time: stopped"
    assert ablation.Ablation().answer([]) == ""


def test_settings_of_every_kind():
    every = {t.name for t in ablation.EsdgSystem.techniques}
    for kind in ("ladder", "removed", "precompute"):
        chosen = ablation.settings(kind)
        for switches, blocks in chosen.values():
            assert set(switches) <= every
            assert (blocks is None) == (not switches["checkpoint"])
        for slow, fast in ablation.ratios_of(kind).values():
            assert {slow, fast} <= set(chosen)
    last = ablation.settings("ladder")[ablation.LADDER[-1]]
    assert last == ablation.settings("removed")[ablation.ON]


@pytest.mark.parametrize("preset", ["smoke", "quick", "full", "paper"])
@pytest.mark.parametrize("experiment", [memory.Memory(), ablation.Ablation()])
def test_cells_are_named_once(experiment, preset):
    for device in ("cpu", "cuda"):
        cells = experiment.cells(preset, device)
        assert len({str(sorted(c.params.items())) for c in cells}) == len(cells)
        assert all(c.params.get("dataset", "amlsim") in BY_NAME for c in cells)
    assert any(c.unavailable for c in ablation.Ablation().cells("quick", "cuda"))
    assert not any(c.unavailable for c in ablation.Ablation().cells("quick", "cpu"))


def test_verdicts_come_out():
    rows = [*sized(), swept(), budgeted(), *(precomputed(m) for m in MODELS)]
    found = evaluate(PAPER, rows)
    assert not found.warnings
    words = {claim: found.find(claim)[1].verdict for claim in CLAIMS}
    for claim in ("esdg-s31-oom-below-8", "esdg-s62-baseline-oom-node"):
        verdict = found.find(claim)[1]
        assert verdict.verdict == "not run here"
        assert verdict.other_way
        assert "is not printed" in verdict.reason
    assert words["esdg-s32-transfer-twice"] == "reproduced"
    assert words["esdg-s31-block-memory"] == "reproduced"
    assert list(words.values()).count("not run here") == 2
