"""ESDG's memory and ablation experiments and their checks: each can hold and can fail."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Any

import pytest
from esdg_rows import edited, gain, judge, number, processes, row, row_of, seen
from msgspec.structs import replace
from paper_rows import answered_by

from dgbench.harness.claims.evaluate import evaluate
from dgbench.harness.claims.ledger import load_ledger
from dgbench.harness.store.row import Row
from dgbench.lab.compare import control_ratios
from dgbench.lab.table import Observation
from dgbench.models import build_model
from dgbench.systems.base import RunContext
from dgbench.systems.esdg import PAPER
from dgbench.systems.esdg import claims as table
from dgbench.systems.esdg.checks import checkpoint
from dgbench.systems.esdg.experiments import ablation, fig4, memory
from dgbench.systems.esdg.experiments.ablation import LADDER, OFF
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


def sized() -> list[Row]:
    return [
        row("memory", {"part": "sizes", "model": model}, *memory.sizes(model).observations)
        for model in MODELS
    ]


def swept(*changed: Observation, model: str = "cd_gcn") -> Row:
    """A sweep whose peaks meet their plans, with these observations in place of its own."""
    counts = (1, 4, 16)
    layout = {"setting": "layout", "of": "memory", "method": "formula"}
    found = [
        seen("snapshots", 32),
        seen("turns", 6),
        seen("memory", 1000, of="peak", setting="layout"),
        seen("estimate", 990.0, **layout),
    ]
    for n in counts:
        for setting, brought in (("ours", 40), ("paper", 64)):
            where = {"setting": setting, "blocks": n}
            found += [
                seen("memory", 1000 // n, of="peak", **where),
                seen("snapshots", brought, of="brought", **where),
                seen("estimate", 1000 / n, of="memory", method="planned", **where),
                seen("estimate", 900 / n, of="memory", method="formula", **where),
            ]
    for n in counts[1:]:
        found += [
            gain(1.2, 1.1, 1.3, baseline="paper", blocks=n),
            gain(1.1, 1.0, 1.2, baseline="ours", blocks=n),
        ]
    params = {"part": "sweep", "dataset": "amlsim", "model": model}
    made = row("memory", params, *found, data={"twin": True}, deviation={"output": 1e-7})
    return edited(made, *changed)


def budgeted(*changed: Observation) -> Row:
    found = []
    for share, blocks in zip(memory.SHARES, (2, 5), strict=True):
        sizes = {"budget": 1000, "planned": 950, "peak": 990, "fewer": 1200}
        found += [seen("memory", size, of=of, budget_share=share) for of, size in sizes.items()]
        found.append(seen("timeline_blocks", blocks, budget_share=share))
    params = {"part": "budget", "dataset": memory.REAL_GRAPH, "model": "tm_gcn"}
    return edited(row("memory", params, *found), *changed)


def precomputed(model: str, *changed: Observation, by: float = 1.2) -> Row:
    found = [
        gain(by, 0.95 * by, 1.05 * by, setting=setting)
        for setting in ("precompute", "plain, precompute")
    ]
    params = {"dataset": "amlsim", "model": model, "kind": "precompute"}
    return edited(row("ablation", params, *found, deviation={"output": 1e-7}), *changed)


def find(claim: str, rows: list[Row]):
    return CHECKS[claim](CLAIMS[claim], rows)


def test_every_claim_has_its_check_and_asks_for_rows(wording):
    assert len(CHECKS) == len(CLAIMS) == 7
    for claim in CLAIMS:
        found = find(claim, [])
        assert found.measured is None
        wording(found.reason)


# Section 3.1 and 6.2, counted


def test_bytes_at_the_papers_sizes_follow_the_formula():
    sizes = memory.sizes("cd_gcn")

    def found(metric: str, method: str, ranks: int, of: str) -> int:
        return number(sizes, metric, of=of, method=method, dataset="amlsim", ranks=ranks)

    n, t, nnz = 1_000_000, 200, 124_000_000
    whole = found("memory", "formula", 1, "whole")
    assert whole == 20 * nnz + 160 * n * t
    # Of 200 steps 128 ranks have two at most.
    share = found("memory", "formula", 128, "whole")
    assert share == pytest.approx(2 * (20 * nnz / t + 160 * n))
    for ranks in RANKS:
        best = found("memory", "formula", ranks, "best")
        blocks = found("timeline_blocks", "formula", ranks, "best")
        size = ceil(ceil(t / blocks) / ranks)
        border = 96 * n * blocks / ranks
        assert best == int(size * (20 * nnz / t + 160 * n) + border)
        fewest = found("timeline_blocks", "formula", ranks, "fewest")
        assert 1 <= fewest <= blocks
    assert found("memory", "torch", 1, "whole") > 5 * whole


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


def test_without_checkpoint_most_fit_by_every_formula_and_would_not_on_smaller_devices(monkeypatch):
    rows = sized()
    for name in ("s31-oom-below-8", "s62-baseline-oom-node"):
        found = judge(name, rows)
        assert (found.glyph, found.lacks) == ("O", ("projected by the memory formula",))
        assert set(found.readings) == set(memory.COST_TITLES.values())
    assert judge("s31-oom-below-8", rows).measured.startswith("0 of 12")
    rows = shrunk(monkeypatch, 8)
    assert judge("s31-oom-below-8", rows).glyph == "S"  # the same formula, and as strong
    # Some still fit without checkpoint, which is not what is said.
    assert "opposed" in judge("s62-baseline-oom-node", rows).readings.values()


# Sections 3.1 and 3.2, from sweeps

CASES: dict[str, tuple[Callable[..., list[Row]], Observation]] = {
    "esdg-s31-block-memory": (
        lambda *wrong: [swept(*wrong)],
        seen("memory", 300, of="peak", setting="paper", blocks=4),
    ),
    "esdg-s32-transfer-twice": (
        lambda *wrong: [swept(*wrong)],
        seen("snapshots", 63, of="brought", setting="paper", blocks=16),
    ),
    "esdg-s62-bsize-tuned": (
        lambda *wrong: [budgeted(*wrong)],
        seen("memory", 900, of="fewer", budget_share=0.5),
    ),
    "esdg-s31-fewer-blocks-faster": (
        lambda *wrong: [swept(*wrong)],
        gain(0.8, 0.7, 0.9, baseline="paper", blocks=4),
    ),
    "esdg-s55-precompute": (
        lambda *wrong: [precomputed("tm_gcn"), precomputed("cd_gcn", *wrong)],
        gain(0.8, 0.7, 0.9, setting="precompute"),
    ),
}


@pytest.mark.parametrize("claim", CASES)
def test_a_check_holds_and_fails(claim):
    rows, wrong = CASES[claim]
    good = find(claim, rows())
    assert good.holds is True, good.reason
    assert not good.undecided
    bad = find(claim, rows(wrong))
    assert bad.holds is False
    assert not bad.undecided


def test_a_budget_that_is_not_kept_is_no_tuning():
    for of, size in (("peak", 1200), ("planned", 1001)):
        wrong = budgeted(seen("memory", size, of=of, budget_share=0.1))
        assert find("esdg-s62-bsize-tuned", [wrong]).holds is False, of


def test_times_inside_their_noise_decide_nothing():
    wide = swept(gain(1.2, 0.9, 1.3, baseline="paper", blocks=16))
    assert find("esdg-s31-fewer-blocks-faster", [wide]).undecided
    assert find("esdg-s55-precompute", [precomputed("cd_gcn", by=1.01)]).undecided
    five = processes(precomputed("cd_gcn"))
    assert judge("s55-precompute", [replace(one, device="cuda") for one in five]).glyph == "R"
    assert judge("s55-precompute", five).lacks == ("a CPU stands for a GPU",)
    assert "1 of 5 processes" in judge("s55-precompute", five[:1]).lacks


# Real, small


def run(experiment: Any, context: RunContext = SMOKE, **wanted: str) -> Row:
    cells = [c for c in experiment.cells("smoke", "cpu") if wanted.items() <= c.params.items()]
    return row_of(cells[0], experiment.run(cells[0], context))


def test_memory_runs_and_is_drawn_and_judged(monkeypatch):
    rows = sized() + [run(memory.Memory(), part=part) for part in ("sweep", "budget")]
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


def test_a_sweep_weighs_tensors_in_its_first_process_and_races_itself_in_each():
    again = RunContext("cpu", "smoke", 1, budget_s=0.01, round=2)
    first, second = run(memory.Memory(), part="sweep"), run(memory.Memory(), again, part="sweep")
    second = replace(second, id="second", round=2)
    rows = [first, second]
    assert memory.weighed(rows) == [first]
    assert memory.block_counts(second) == memory.block_counts(first)
    assert find("esdg-s31-block-memory", rows).rows == [first.id]
    assert find("esdg-s31-fewer-blocks-faster", rows).rows == [first.id, "second"]
    assert {one for p in memory.rate_points(rows) for one in p["row_ids"]} == {first.id}
    assert len(control_ratios(rows)) == 2
    assert "blocks take" in memory.Memory().answer(rows)


def test_ablation_runs_and_is_drawn_and_judged():
    rows = [run(ablation.Ablation(), kind=kind) for kind in ("ladder", "precompute")]
    points = ablation.step_points(rows)
    assert [p["technique"] for p in points] == ["", *LADDER]
    assert points[1]["gain"] > 0
    bounds = {"lean": (0.9, 1.2), "fallback": (1.1, 1.2)}
    known = edited(
        rows[0],
        *(
            gain(number(rows[0], "speedup", setting=name), *ends, setting=name)
            for name, ends in bounds.items()
        ),
    )
    inside = {p["technique"]: p.get("same") for p in ablation.step_points([known])}
    assert inside["lean"]
    assert not inside["fallback"]
    sent, planned = (
        {name: number(rows[0], metric, **dims, setting=name) for name in (OFF, *LADDER)}
        for metric, dims in (("host_to_device", {}), ("memory", {"of": "planned"}))
    )
    assert sent["checkpoint"] == 2 * sent[OFF]
    assert sent["lean"] < sent["precompute"]
    assert sent["fallback"] < sent["lean"]
    assert sent["prefetch"] == sent["fallback"]
    assert planned["checkpoint"] < planned[OFF]
    assert ablation.Ablation().answer(rows)
    assert find("esdg-s55-precompute", rows).measured is not None
    failed = replace(rows[0], status="time", reason="stopped")
    assert ablation.step_points([failed])[0]["failed"] == "time: stopped"
    assert ablation.Ablation().answer([]) == ""


@pytest.mark.parametrize(
    ("experiment", "wanted"),
    [
        (memory.Memory(), {"part": "sweep"}),
        (ablation.Ablation(), {"kind": "precompute"}),
        (fig4.Fig4(), {"part": "timed", "model": "tm_gcn"}),
    ],
)
def test_later_processes_of_a_timed_cell_leave_the_oracle_to_the_first(experiment, wanted):
    for preset, count in (("smoke", 1), ("quick", 5), ("full", 5)):
        cells = [c for c in experiment.cells(preset, "cpu") if wanted.items() <= c.params.items()]
        assert cells
        assert all(cell.repeats == count and cell.interleaved for cell in cells)
    (cell, *_) = (c for c in experiment.cells("smoke", "cpu") if wanted.items() <= c.params.items())
    second = experiment.run(cell, RunContext("cpu", "smoke", 1, budget_s=0.01, round=2))
    assert second.deviation == {}
    assert second.checks  # bytes are still counted twice
    assert any(one.metric == "speedup" for one in second.observations)


def test_settings_of_every_kind():
    every = {t.name for t in ablation.EsdgSystem.techniques}
    for kind in ("ladder", "removed", "precompute"):
        chosen = ablation.settings(kind)
        for switches, blocks in chosen.values():
            assert set(switches) <= every
            assert (blocks is None) == (not switches["checkpoint"])
        for slow, fast in ablation.ratios_of(kind).values():
            assert {slow, fast} <= set(chosen)
    last = ablation.settings("ladder")[LADDER[-1]]
    assert last == ablation.settings("removed")[ablation.ON]


@pytest.mark.parametrize("preset", ["smoke", "quick", "full", "paper"])
@pytest.mark.parametrize("experiment", [memory.Memory(), ablation.Ablation()])
def test_cells_are_named_once(experiment, preset):
    for device in ("cpu", "cuda"):
        cells = experiment.cells(preset, device)
        assert len({str(sorted(c.params.items())) for c in cells}) == len(cells)
        assert all(c.params.get("dataset", "amlsim") in BY_NAME for c in cells)
    assert any(c.unavailable for c in ablation.Ablation().cells("full", "cuda"))
    assert not any(c.unavailable for c in ablation.Ablation().cells("full", "cpu"))


def test_verdicts_come_out():
    rows = [*sized(), swept(), budgeted(), *(precomputed(m) for m in MODELS)]
    found = evaluate(PAPER, rows)
    assert not found.warnings
    glyphs = {claim: found.find(claim)[1].glyph for claim in CLAIMS}
    for claim in ("esdg-s31-oom-below-8", "esdg-s62-baseline-oom-node"):
        assert glyphs[claim] == "O"
    assert glyphs["esdg-s32-transfer-twice"] == "R"
    # By the same formula, so as weak as those that it speaks against.
    assert glyphs["esdg-s31-block-memory"] == glyphs["esdg-s62-bsize-tuned"] == "S"
    assert "-" not in glyphs.values()
