"""Chunk fusion as DGC's experiments and checks show it: loads, memory, forms, verdicts."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from dgc_rows import but, judged, kept, row_of, seen
from tiny_data import tiny_sequence

from dgbench.runtime.collectives import LocalCommunicator
from dgbench.systems.base import RunContext
from dgbench.systems.base.race import relative
from dgbench.systems.base.sequences import SequenceWorkload, sequence_model, vertex_steps
from dgbench.systems.dgc import PAPER
from dgbench.systems.dgc.chunk_memory import kept_by_chunks
from dgbench.systems.dgc.claims import CHECKS
from dgbench.systems.dgc.dealing import WorkAssignment
from dgbench.systems.dgc.experiments import fig15, fusion_ablation
from dgbench.systems.dgc.loading import (
    OFF,
    ON,
    SETTINGS,
    SPATIAL,
    TEMPORAL,
    Loader,
    count_loads,
    in_turns,
    plans_of,
)
from dgbench.systems.dgc.placement import by_chunks
from dgbench.systems.dgc.plan import plan_worker, step_entries
from dgbench.systems.dgc.time_encoders import CONTENDERS, PADDED, TORCH, time_encoders
from dgbench.systems.dgc.trainer import ChunkRankTrainer
from dgbench.systems.dgc.volumes import shape_of

CLAIMS = {}


@pytest.fixture(scope="module", autouse=True)
def ledger():
    from dgbench.harness.claims.ledger import load_ledger

    CLAIMS.update({claim.id.removeprefix("dgc-"): claim for claim in load_ledger(PAPER.ledger)})


def task_of(model: str = "mpnn_lstm_bare") -> SequenceWorkload:
    return SequenceWorkload(dataset="tiny", model=model, feature_dim=3, hidden_dim=4)


def dealt(task: SequenceWorkload, data, workers: int = 2, chunks: int = 9) -> WorkAssignment:
    """Chunks drawn at random: worse than real ones, so that there is much to fuse."""
    graph = vertex_steps(data, task)
    draw = torch.Generator().manual_seed(3)
    chunk = torch.randint(0, chunks, (graph.num_vertices,), generator=draw, dtype=torch.int32)
    placement = by_chunks(graph, chunk, chunks, torch.arange(chunks) % workers, workers)
    return WorkAssignment(graph, placement, step_entries(data, graph), None, 0.0)


@pytest.fixture(scope="module")
def tiny():
    data = tiny_sequence(nodes=14, snapshots=8, edges=10)
    task = task_of()
    return task, data, dealt(task, data)


def test_loads_are_counted_by_formula(tiny):
    task, data, out = tiny
    shape = shape_of(sequence_model(task))
    plans = plans_of(data, out, norm="sym")
    loads = {name: count_loads(plan, shape) for name, plan in plans.items()}
    for name, plan in plans.items():
        found = loads[name]
        runs = [run for stage in plan.time.stages for run in stage.groups]
        cells = sum(run.rows.row_length * run.rows.num_rows for run in runs)
        assert found.zeros == (cells - plan.time.rows.numel()) * 8
        matrices = sum(
            group.csr.indptr.nbytes + group.csr.indices.nbytes + group.csr.values.nbytes
            for group in plan.structure.groups
        )
        assert found.bytes == 4 * (found.rows * (3 + 4) + cells * 8) + matrices
        assert found.rows == sum(g.columns.numel() for g in plan.structure.groups)
    assert loads[SPATIAL].rows == loads[ON].rows < loads[OFF].rows == loads[TEMPORAL].rows
    assert loads[TEMPORAL].zeros == loads[ON].zeros < loads[OFF].zeros == loads[SPATIAL].zeros
    assert loads[ON].groups == 1 < loads[OFF].groups


def test_what_is_loaded_is_all_there(tiny):
    task, data, out = tiny
    shape = shape_of(sequence_model(task))
    loaders = {n: Loader(p, shape, "cpu") for n, p in plans_of(data, out, norm="sym").items()}
    for loader in loaders.values():
        loader.load()
        assert loader.gap() == 0
        loader._runs = loader._runs[1:]
        assert loader.gap() > 0
    seconds = in_turns(loaders, 3, 0.0)
    assert {name: len(times) for name, times in seconds.items()} == dict.fromkeys(SETTINGS, 3)


@pytest.mark.parametrize("model", ["tgcn_2layer", "dysat", "mpnn_lstm_bare"])
def test_fused_training_is_unfused_training(tiny, model):
    """Outputs and gradients of all four settings, one worker with all chunks; float64 and 32."""
    _, data, _ = tiny
    task = task_of(model)
    out = dealt(task, data)
    alone = torch.zeros_like(out.placement.structure)
    placement = replace(out.placement, workers=1, structure=alone, time=alone)
    for dtype, allowed in ((torch.float64, 1e-12), (torch.float32, 1e-6)):
        answers = {}
        for name, (fusion, temporal) in SETTINGS.items():
            trainer = ChunkRankTrainer(
                LocalCommunicator(), task, data, placement, fusion=fusion, temporal=temporal,
                graph=out.graph, entries=out.entries, dtype=dtype,
            )  # fmt: skip
            assert (len(trainer.plan.structure.groups) == 1) == (fusion == "whole")
            grads = torch.cat([g.flatten() for g in trainer.gradients(0).values()])
            assert float(grads.norm()) > 0
            answers[name] = trainer.evaluate(0), grads
        for name in SETTINGS:
            for found, wanted in zip(answers[name], answers[OFF], strict=True):
                assert relative(found, wanted) <= allowed


def test_memory_is_measured_for_every_chunk(tiny):
    task, data, out = tiny
    plan = plan_worker(data, out.graph, out.placement, 0, attention=True).structure
    kept = kept_by_chunks(sequence_model(task), plan, "cpu", 3)
    assert kept.shape == (3, len(plan.groups))
    assert bool((kept > 0).all())
    assert kept[1].tolist() == kept[2].tolist()
    whole = plan_worker(data, out.graph, out.placement, 0, attention=True, fusion="whole").structure
    assert int(kept_by_chunks(sequence_model(task), whole, "cpu", 1)) > int(kept[0].max())


def test_forms_of_the_encoder_agree(tiny):
    task, data, out = tiny
    forms = time_encoders(task, data, out, "cpu", 2, 0.0)
    assert tuple(forms) == CONTENDERS
    assert all(len(form.seconds) == 2 for form in forms.values())
    assert max(form.deviation for form in forms.values()) <= 1e-6
    assert forms[TORCH].zeros == 0
    lengths = out.graph.start.diff()
    lengths = lengths[lengths > 0]
    assert forms[PADDED].zeros == int((lengths.max() - lengths).sum()) * 8


def test_samples_are_taken_while_it_works():
    calls = []
    samples, steps = fig15._sampled(lambda: 7.0, lambda: calls.append(1), 0.08)
    assert set(samples) == {7.0}
    assert steps == len(calls) > 0


def open_tiny(monkeypatch, data):
    """Give tiny data and random chunks to the experiments."""
    for module in (fig15, fusion_ablation):
        monkeypatch.setattr(
            module, "dealt_out", lambda task, data, workers, _, **__: dealt(task, data, workers, 21)
        )
        monkeypatch.setattr(module, "workload", lambda graph, model, preset, **_: task_of(model))
    monkeypatch.setattr("dgbench.systems.base.sequences.load_sequences", lambda task: data)


def rows_of(experiment, context, preset="smoke"):
    """Run all cells that can; rows as the harness keeps them."""
    rows = []
    for i, cell in enumerate(experiment.cells(preset, "cpu")):
        own = {"id": f"r{i}", "group": cell.group, "preset": preset}
        params = dict(cell.params)
        if cell.unavailable:
            own |= {"status": "no-gpu", "reason": cell.unavailable}
            rows.append(row_of(experiment.name, params, **own))
        else:
            rows.append(kept(experiment.run(cell, context), experiment.name, params, **own))
    return rows


def test_experiments_run_draw_and_answer(monkeypatch, tiny):
    open_tiny(monkeypatch, tiny_sequence(nodes=14, snapshots=6, edges=10))
    context = RunContext(device="cpu", preset="smoke", threads=1)
    loading, ablation = fig15.Fig15(), fusion_ablation.FusionAblation()
    assert len(rows_of(ablation, context)) == 1
    rows = rows_of(loading, context) + rows_of(ablation, replace(context, preset="quick"), "quick")
    for experiment in (loading, ablation):
        assert experiment.answer([]) == ""
        assert experiment.answer(rows).endswith(".")
        for figure in experiment.figures():
            points = figure.points(rows)
            assert points
            assert all("y" in point and ("row_ids" in point or "failed" in point)
                       for point in points)  # fmt: skip
    assert [p["failed"] for p in fig15.use_points(rows)] == [
        "no-gpu: needs a CUDA device, none is here"
    ]
    claims = {
        name: check(CLAIMS[name.removeprefix("dgc-")], rows)
        for name, check in CHECKS.items()
        if name in (*loading.claims, *ablation.claims)
    }
    assert claims["dgc-s512-mask-correct"].holds
    assert claims["dgc-s511-redundant-load"].direction
    assert claims["dgc-s511-memory-stable"].measured is not None
    assert claims["dgc-fig15b-gpu-util"].measured is None
    assert claims["dgc-fig15a-stack-highest"].measured is None  # one graph of four


def test_a_later_process_of_the_ablation_times_and_leaves_counts_to_the_first(
    monkeypatch, tmp_path
):
    monkeypatch.setenv("DGBENCH_CACHE", str(tmp_path))
    open_tiny(monkeypatch, tiny_sequence(nodes=14, snapshots=6, edges=10))
    ablation = fusion_ablation.FusionAblation()
    (cell,) = ablation.cells("smoke", "cpu")
    first, later = (
        ablation.run(cell, RunContext(device="cpu", preset="smoke", threads=1, round=n))
        for n in (1, 2)
    )
    of_steps = {"losses", "outputs", "gradients", "updates so far", "updates", "moments"}
    assert {check.of for check in later.checks} == of_steps
    assert {check.of for check in first.checks} > {check.of for check in later.checks}
    assert all(check.passed for check in (*first.checks, *later.checks))
    gains = [
        [one.dims for one in m.observations if one.metric == "speedup"] for m in (first, later)
    ]
    assert gains[0] == gains[1] != []
    rows = [
        kept(m, ablation.name, dict(cell.params), id=f"r{n}", group=cell.group, round=n)
        for n, m in ((1, first), (2, later))
    ]
    assert fusion_ablation.ablation_rows(rows) == rows[:1]


def test_a_later_process_of_the_ablation_that_trains_something_else_fails(monkeypatch, tmp_path):
    monkeypatch.setenv("DGBENCH_CACHE", str(tmp_path))
    open_tiny(monkeypatch, tiny_sequence(nodes=14, snapshots=6, edges=10))
    ablation = fusion_ablation.FusionAblation()
    (cell,) = ablation.cells("smoke", "cpu")
    context = RunContext(device="cpu", preset="smoke", threads=1)
    ablation.run(cell, context)
    right = ChunkRankTrainer.accumulate
    monkeypatch.setattr(ChunkRankTrainer, "accumulate", lambda self: 1.01 * right(self))
    found = ablation.run(cell, replace(context, round=2))
    assert {check.of for check in found.checks if not check.passed} == {"losses"}


def ablation_row(model="dysat", gap=1e-8):
    loads = {"most": 4, "least": 2}
    observed = [
        seen("boundary_rows", 10),
        seen("rows_loaded", 25, of="boundary", format="unfused"),
        seen("rows_loaded", 10, of="boundary", format="fused"),
        *(seen("rows_loaded", count, of=of) for of, count in loads.items()),
        seen("chunks", 3, of="memory"),
        seen("epochs", 3, of="memory"),
        seen("turns", 6),
        *(seen("deviation", gap, of=of, setting=TEMPORAL) for of in ("forward", "backward")),
        seen("deviation", 0.01, of="memory"),
        seen("deviation", 0.0, of="memory_later"),
    ]
    params = {"dataset": "email-eu-core", "model": model}
    return row_of("fusion_ablation", params, observed, deviation={"output": 1e-7})


def loading_row(dataset, gain=4.0, *, low=3.9, high=4.1, steps=1000, size=10**6, **fields):
    observed = [
        seen("speedup", gain, low=low, high=high, setting=ON, baseline=OFF),
        seen("host_to_device", size, setting=OFF),
        seen("host_to_device", size // 2, setting=ON),
        seen("vertex_steps", steps),
    ]
    params = {"dataset": dataset, "kind": "loading", "model": "mpnn_lstm_bare"}
    return row_of("fig15", params, observed, data={"twin": True}, **fields)


def ask(name, rows):
    return CHECKS[f"dgc-{name}"](CLAIMS[name], rows)


def test_equal_results_of_all_three_models_decide_the_mask():
    models = ("tgcn_2layer", "dysat", "mpnn_lstm_bare")
    assert ask("s512-mask-correct", [ablation_row(m) for m in models]).holds
    assert not ask("s512-mask-correct", [ablation_row(m, 1e-5) for m in models]).holds
    lacking = ask("s512-mask-correct", [ablation_row(m) for m in models[1:]])
    assert lacking.measured is None
    assert "T-GCN" in lacking.reason


def test_memory_that_changes_is_not_stable():
    assert ask("s511-memory-stable", [ablation_row()]).holds
    assert not ask("s511-memory-stable", [but(ablation_row(), "deviation", 0.3, of="memory")]).holds
    assert ask("s511-memory-stable", []).measured is None


def test_a_row_loaded_twice_after_fusion_contradicts():
    found = ask("s511-redundant-load", [ablation_row()])
    assert (found.holds, found.direction) == (False, True)  # up to four times, not twice
    assert found.measured == {"unfused": 2.5, "fused": 1.0}
    exact = but(but(ablation_row(), "rows_loaded", 2, of="most"), "rows_loaded", 20,
                of="boundary", format="unfused")  # fmt: skip
    assert ask("s511-redundant-load", [exact]).holds
    again = but(ablation_row(), "rows_loaded", 11, of="boundary", format="fused")
    assert not ask("s511-redundant-load", [again]).holds
    assert not ask("s511-redundant-load", [again]).direction
    none = but(ablation_row(), "boundary_rows", 0)
    assert ask("s511-redundant-load", [none]).measured is None


def test_loading_needs_less_time_on_every_graph():
    rows = [loading_row(name) for name in ("amazon", "movie")]
    found = ask("fig15a-loading", rows)
    assert found.measured == {"Amazon": 75.0, "Movie": 75.0}
    assert (found.direction, found.undecided) == (True, False)
    told = judged(CLAIMS["fig15a-loading"], rows)
    assert (told.glyph, told.data, told.strength) == ("s", "twin", "weak")
    assert judged(CLAIMS["fig15a-loading"], [*rows, loading_row("stack", 0.5, low=0.4, high=0.6)]
                  ).glyph == "O"  # fmt: skip
    slower = [*rows, loading_row("stack", 0.5, low=0.4, high=0.6)]
    assert not ask("fig15a-loading", slower).direction
    assert not ask("fig15a-loading", slower).undecided
    unsure = [*rows, loading_row("stack", 1.1, low=0.8, high=1.3)]
    assert ask("fig15a-loading", unsure).undecided
    assert ask("fig15a-loading", []).measured is None


def test_order_of_cost_and_gain():
    def rows(**gains):
        return [
            loading_row(name, gains.get(name, 6.0), low=gains.get(name, 6.0) - 0.1,
                        high=gains.get(name, 6.0) + 0.1, size=size)
            for name, size in (("amazon", 10**6), ("epinions", 10**6), ("movie", 10**6),
                               ("stack", 10**8))
        ]  # fmt: skip

    found = ask("fig15a-stack-highest", rows(movie=2.0))
    assert (found.holds, found.undecided) == (True, False)
    assert found.measured == {"loading cost highest": "Stack", "gain lowest": "Movie"}
    assert ask("fig15a-stack-highest", rows(movie=5.95)).undecided
    other = ask("fig15a-stack-highest", rows(amazon=2.0))
    assert (other.holds, other.undecided) == (False, False)
    assert ask("fig15a-stack-highest", rows()[:3]).measured is None


def test_rounds_of_loading_give_an_interval_and_bytes_none():
    mine = []
    for number, (gain, seconds) in enumerate(((3.0, 1e-3), (4.0, 2e-3), (5.0, 4e-3)), 1):
        row = loading_row("amazon", gain, id=f"r{number}", round=number)
        row = but(row, "phase_time", 3 * seconds, phase="loading", setting=OFF)
        mine.append(but(row, "phase_time", seconds, phase="loading", setting=ON))
    off, on = fig15.loading_points(mine)
    assert on["y"] == pytest.approx(2.0)
    assert on["low"] < 1.0
    assert on["high"] > 4.0
    assert off["y"] == pytest.approx(3 * on["y"])
    (alone,) = [p for p in fig15.loading_points(mine[:1]) if p["series"] == ON]
    assert (alone["y"], "low" in alone) == (1.0, False)
    assert [p["y"] for p in fig15.byte_points(mine)] == [1.0, 0.5]
    assert all("low" not in p for p in fig15.byte_points(mine))


def test_a_device_says_how_busy_it_is():
    observed = [
        seen("utilisation", share, setting=name, **of)
        for of, shares in (({}, (0.3, 0.8)), ({"of": "memory"}, (0.01, 0.02)))
        for name, share in zip((OFF, ON), shares, strict=True)
    ]
    params = {"dataset": "movie", "kind": "utilisation"}
    row = row_of("fig15", params, observed, data={"twin": True}, device="cuda")
    found = ask("fig15b-gpu-util", [row]).readings
    by, ends = found["by 20 to 95 points"], found["from 20 to 95 %"]
    assert (by.holds, by.direction) == (True, True)
    assert (ends.holds, ends.direction) == (False, True)
    both = judged(CLAIMS["fig15b-gpu-util"], [row])  # the weaker of both words holds for both
    assert (both.glyph, len(set(both.readings.values()))) == ("s", 2)
    less = ask("fig15b-gpu-util", [but(row, "utilisation", 0.2, setting=ON)]).readings
    assert not any(one.holds or one.direction for one in less.values())
