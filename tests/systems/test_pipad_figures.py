"""Figures 3, 4, 12, Table 2 and the ablations: what cells ask for, and what rows come to mean."""

from __future__ import annotations

import time
from statistics import median
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from matplotlib.text import Text
from msgspec import structs
from pipad_rows import EXPERIMENTS, made, observation, quiet, ran, verdict
from tiny_data import TinySequence

from dgbench.harness.figures import Context, time_split
from dgbench.harness.figures.style import styled
from dgbench.harness.store.row import Row
from dgbench.kernels_cuda.csr import Csr
from dgbench.systems.base import RunContext, get_system, turns
from dgbench.systems.base import data as workload_data
from dgbench.systems.pipad import ladders
from dgbench.systems.pipad.experiments import ablation, fig3, fig4, fig12, table2
from dgbench.systems.pipad.experiments.settings import BY_NAME, workload
from dgbench.systems.pipad.polling import readings

# Figure 3


def fig3_row(percent: float, device: str, **fields: Any) -> Row:
    params = {"dataset": "covid19-england", "model": "evolvegcn", "system": "pygt"}
    share = observation("time_share", percent / 100, phase="transfer")
    return made("fig3", params, [share], device=device, **fields)


def test_the_bytes_of_a_frame_are_those_of_its_edges_and_features(monkeypatch) -> None:
    def csr(edges: int, values: bool) -> Csr:
        indptr = torch.tensor([0, edges, edges, edges])
        weights = torch.ones(edges) if values else None
        return Csr(indptr, torch.arange(edges, dtype=torch.int32), 3, weights)

    for weighted, each in ((False, 16), (True, 20)):
        topology = [csr(t % 3, weighted) for t in range(6)]
        data = TinySequence(topology, torch.zeros(6, 3, 2), torch.zeros(6, 3), 3)
        monkeypatch.setattr(workload_data, "load", lambda task, data=data: data)
        task = SimpleNamespace(frame=2, stride=1)
        wanted = [each * (t % 3 + (t + 1) % 3) + 2 * 4 * 3 * 2 for t in range(4)]
        assert fig3.frame_bytes(task) == wanted


def test_another_number_of_bytes_is_no_result(monkeypatch) -> None:
    cell = fig3.Fig3().cells("smoke", "cpu")[0]
    monkeypatch.setattr(fig3, "frame_bytes", lambda task: [1, 2, 3, 4])
    found = fig3.Fig3().run(cell, RunContext("cpu", "smoke", 1, budget_s=0.01))
    assert [check.against for check in found.checks if not check.passed] == ["formula of bytes"]


def test_copies_in_memory_are_a_proxy_either_way() -> None:
    for claim in ("pipad-fig3-transfer-share", "pipad-s1-transfer-share-approx"):
        for percent, agreement in ((2.0, "opposite"), (39.0, "value")):
            found = verdict([*quiet(), fig3_row(percent, "cpu")], claim)
            assert (found.strength, found.agreement) == ("weak", agreement)
            assert any("a proxy" in why for why in found.lacks)
        rows = [fig3_row(39.0, "cuda", instrumented=True, round=n) for n in range(5)]
        found = verdict([*quiet(), *rows], claim)
        assert (found.strength, found.agreement) == ("strong", "value")


def test_active_multiprocessors_come_from_a_device_only() -> None:
    claim = "pipad-fig3-sm-util"
    assert "CUDA device" in verdict([fig3_row(2.0, "cpu")], claim).reason
    assert "no meter" in verdict([fig3_row(2.0, "cuda")], claim).reason
    low = fig3_row(2.0, "cuda", probes={fig3.SM.name: 30.0})
    high = fig3_row(2.0, "cuda", probes={fig3.SM.name: 90.0})
    assert verdict([low], claim).verdict == "reproduced"
    assert verdict([high], claim).verdict == "contradicted"
    points = fig3.share_points([low])
    assert [p["y"] for p in points] == [2.0, 30.0]


# Figure 4


def step(*samples: float) -> Any:
    return observation("step_time", median(samples), samples=samples)


def phase_times(phases: dict[str, float]) -> list[Any]:
    return [observation("phase_time", seconds, phase=name) for name, seconds in phases.items()]


def fig4_rows(model: str, dataset: str, device: str = "cpu", wall: float = 1.0, **phases: float):
    params = {"dataset": dataset, "model": model, "system": "pygt"}
    plain = made("fig4", params, [step(wall)], device=device)
    told = made(  # three steps, of which the first is in no phase
        "fig4", params, [step(wall), *phase_times({k: 2 * v for k, v in phases.items()})],
        device=device, id=f"{plain.id}-told", warmup=2, instrumented=True,
    )  # fmt: skip
    return [plain, told]


def test_shares_leave_copies_out_and_count_what_no_phase_holds_as_rest() -> None:
    phases = {"gnn": 0.4, "rnn": 0.2, "transfer": 0.1, "update": 0.05}
    on_cpu = fig4.splits(fig4_rows("evolvegcn", "flickr", **phases))["flickr", "evolvegcn"]
    assert on_cpu.seconds == pytest.approx({"gnn": 0.4, "rnn": 0.2, "rest": 0.3})
    assert on_cpu.share("gnn") == pytest.approx(0.4 / 0.9)
    on_gpu = fig4.splits(fig4_rows("evolvegcn", "flickr", "cuda", **phases))["flickr", "evolvegcn"]
    assert on_gpu.seconds == pytest.approx({"gnn": 0.4, "rnn": 0.2, "rest": 0.05})
    assert on_gpu.slowdown == pytest.approx(0.0)


@pytest.mark.parametrize("disturbed", [0, 1])
def test_a_disturbed_step_is_in_the_bar_or_the_total_and_in_the_words(disturbed: int) -> None:
    """Of three steps one took 4.6 times as long, in the instrumented run or in the plain one."""
    rows = fig4_rows("evolvegcn", "flickr", gnn=0.6, rnn=0.4)
    samples = [[1.0, 1.0, 1.0], [1.0, 4.6, 1.0]]
    plain, told = samples if disturbed else samples[::-1]
    phases = {"gnn": 0.6 * sum(told), "rnn": 0.4 * sum(told)}
    rows = [
        structs.replace(rows[0], observed=[step(*plain)], warmup=1),
        structs.replace(rows[1], observed=[step(*told), *phase_times(phases)], warmup=1),
    ]
    (spec,) = EXPERIMENTS["fig4"].figures()
    points = spec.points(rows)
    with styled():
        figure = time_split.draw(points, spec.options, Context(run="1"), True)
    ends = [max(b.get_x() + b.get_width() for b in axes.patches) for axes in figure.axes]
    texts = " ".join(text.get_text() for text in figure.findobj(Text))
    assert "bars and totals: means of steps" in texts
    if disturbed:
        assert ends == pytest.approx([2200])
        assert "at most 120.0 % slower" in texts
    else:
        assert points[0]["total"] == pytest.approx(2.2)
        assert "at most -54.5 % slower" not in texts
        assert "at most 0.0 % slower" in texts


def test_a_bar_without_a_run_without_instruments_is_none() -> None:
    plain, told = fig4_rows("evolvegcn", "flickr", gnn=0.6, rnn=0.4)
    (spec,) = EXPERIMENTS["fig4"].figures()
    assert [p["failed"] for p in spec.points([told])] == ["skipped: no run without instruments"]
    killed = structs.replace(plain, status="oom", reason="too large", observed=[])
    assert [p["failed"] for p in spec.points([killed, told])] == ["oom: too large"]


def split_rows(gnn: float, device: str = "cpu") -> list[Row]:
    return [
        found
        for model in ("evolvegcn", "mpnn_lstm", "tgcn_model")
        for found in fig4_rows(model, "flickr", device, gnn=gnn, rnn=0.9 - gnn, update=0.1)
    ]


def test_graph_layers_lead_in_all_models_or_the_claim_fails(wording) -> None:
    claim = "pipad-fig4-gnn-dominates-compute"
    assert verdict(quiet() + split_rows(0.6), claim).verdict == "supported"
    assert verdict(quiet() + split_rows(0.6, "cuda"), claim).agreement == "value"
    behind = split_rows(0.6)[:4] + fig4_rows("tgcn_model", "flickr", gnn=0.2, rnn=0.7)
    assert verdict(quiet() + behind, claim).verdict == "opposed"
    close = split_rows(0.6)[:4] + fig4_rows("tgcn_model", "flickr", gnn=0.5, rnn=0.5)
    assert verdict(quiet() + close, claim).verdict == "undecided"
    wording(verdict(split_rows(0.6)[:4], claim).reason)


def test_a_far_larger_share_is_twice_as_much() -> None:
    claim = "pipad-s52-mpnn-rnn-heavy"

    def found(large: float, small: float) -> Any:
        rows = fig4_rows("mpnn_lstm", "flickr", rnn=large, gnn=1 - large)
        rows += fig4_rows("mpnn_lstm", "hepth", rnn=small, gnn=1 - small)
        return verdict(quiet() + rows, claim)

    assert found(0.8, 0.3).agreement == "value"
    assert found(0.5, 0.3).agreement == "direction"
    assert found(0.3, 0.31).agreement == "undecided"
    assert found(0.3, 0.8).agreement == "opposite"
    assert "needed" in verdict(fig4_rows("mpnn_lstm", "flickr", rnn=0.5, gnn=0.5), claim).reason


@pytest.mark.parametrize(
    ("gnn", "word"), [(0.9, "supported"), (0.6, "depends on the reading"), (0.2, "opposed")]
)
def test_a_small_part_is_read_both_ways(gnn: float, word: str) -> None:
    rows = fig4_rows("evolvegcn", "flickr", gnn=gnn, rnn=1 - gnn)
    rows += fig4_rows("evolvegcn", "hepth", gnn=0.95, rnn=0.05)
    assert verdict(quiet() + rows, "pipad-s52-evolvegcn-other-small").verdict == word


def test_a_workload_without_phases_is_drawn_as_a_gap() -> None:
    params = {"dataset": "flickr", "model": "mpnn_lstm", "system": "pygt"}
    bad = made("fig4", params, status="oom", reason="too much")
    points = fig4.split_points([bad, *fig4_rows("evolvegcn", "flickr", gnn=0.7, rnn=0.3)])
    assert [p.get("failed", "") for p in points] == ["", "", "", "oom: too much"]


# Figure 12


def balance_rows(dataset: str, csr: float, sliced: float) -> list[Row]:
    return [balance_row(dataset, csr * (1 + n / 1000), sliced, n + 1) for n in range(5)]


def balance_row(dataset: str, csr: float, sliced: float, number: int = 1) -> Row:
    gaps = [({"format": "csr"}, csr)]
    gaps += [({"format": "sliced", "cap": cap}, sliced) for cap in fig12.CAPS]
    found = [
        observation("worker_time", value, of=of, **dims)
        for dims, busiest in gaps
        for of, value in (("busiest", busiest), ("balanced", 1.0))
    ]
    return made("fig12", {"part": "balance", "dataset": dataset}, found, round=number)


def test_slices_must_balance_every_graph_and_small_ones_least() -> None:
    claim = "pipad-fig12-load-balance"
    good = balance_rows("flickr", 9.0, 1.1) + balance_rows("hepth", 2.0, 1.5)
    found = verdict(quiet() + good, claim)
    assert (found.strength, found.agreement, found.source) == ("weak", "value", "projected")
    worse = good[:5] + balance_rows("hepth", 1.2, 1.5)
    assert verdict(quiet() + worse, claim).agreement == "opposite"
    turned = balance_rows("flickr", 2.0, 1.5) + balance_rows("hepth", 9.0, 1.1)
    assert verdict(quiet() + turned, claim).agreement == "direction"  # not least on the small one
    assert verdict(quiet() + good[:1] + good[5:6], claim).agreement == "undecided"


def train_rows(dataset: str, model: str, gain: float, noise: float) -> list[Row]:
    """Five rounds around a gain."""
    params = {"part": "train", "dataset": dataset, "model": model, "system": "pipad"}
    return [
        made("fig12", params,
             [observation("speedup", gain * (1 + noise * (number - 2)), setting="sliced")],
             round=number + 1, deviation={"output": 0.0})
        for number in range(5)
    ]  # fmt: skip


def test_the_largest_gain_must_stand_clear_of_the_others() -> None:
    claim = "pipad-fig12-speedup-trend"
    top = train_rows("youtube", "evolvegcn", 2.0, 0.01)
    other = train_rows("youtube", "mpnn_lstm", 1.2, 0.01)
    assert verdict(quiet() + top + other, claim).verdict == "supported"
    near = train_rows("youtube", "mpnn_lstm", 1.99, 0.05)
    assert verdict(quiet() + top + near, claim).verdict == "undecided"
    above = train_rows("hepth", "evolvegcn", 3.0, 0.01)
    assert verdict(quiet() + top + above, claim).verdict == "opposed"
    assert "needed" in verdict(top, claim).reason


def test_hubs_unbalance_rows_and_not_slices() -> None:
    degrees = torch.ones(64, dtype=torch.int64)
    degrees[0] = 6000
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), degrees.cumsum(0)])
    csr = Csr(indptr, torch.zeros(int(indptr[-1]), dtype=torch.int32), 64)
    x = torch.ones(64, 8)
    from dgbench.kernels_cuda.slices import slice_csr

    rows, slices = (
        fig12._on_workers([(matrix, x)]) for matrix in (csr, slice_csr(csr, 32))
    )  # (busiest, balanced)
    assert rows[0] / rows[1] > 3 * slices[0] / slices[1]


# Table 2


def test_without_a_device_no_process_reads_utilisation() -> None:
    for preset in ("smoke", "quick", "full", "paper"):
        cells = table2.Table2().cells(preset, "cpu")
        assert all("CUDA device" in cell.unavailable for cell in cells)
        assert not any(cell.unavailable for cell in table2.Table2().cells(preset, "cuda"))
    assert len(table2.Table2().cells("paper", "cuda")) == 5 * 3 * 7


def test_utilisation_is_read_while_the_block_runs_and_not_after() -> None:
    values = iter(range(1000))
    with readings(lambda: next(values), period_s=0.001) as found:
        while len(found.values) < 3:
            time.sleep(0.001)
    count = len(found.values)
    time.sleep(0.01)
    assert found.values == list(range(count))
    assert not found.broken


def test_a_meter_that_fails_gives_no_reading_and_says_why() -> None:
    def broken() -> float:
        raise RuntimeError("no NVML")

    with readings(broken, period_s=0.001) as found:
        while not found.broken:
            time.sleep(0.001)
    assert found.values == []
    assert found.broken == "RuntimeError: no NVML"


def test_utilisation_of_table_2_goes_before_probes_of_other_processes() -> None:
    params = {"dataset": "covid19-england", "model": "evolvegcn", "system": "pygt"}
    own = made("table2", params, [observation("utilisation", 0.12)], device="cuda")
    probes = {"gpu_kernel_resident_percent": 90.0}
    other = made("fig10", params, device="cuda", probes=probes)
    claim = "pipad-tab2-util-evolvegcn-pygt"
    assert verdict([own, other], claim).measured == 12.0
    assert verdict([other], claim).measured == 90.0
    points = table2.busy_points([own])
    assert [p["y"] for p in points] == [12.0]


# Ablation


@pytest.mark.parametrize("link", ladders.LADDERS)
def test_settings_turn_one_switch_at_a_time(link) -> None:
    known = {t.name for t in get_system("pipad").techniques}
    order = ladders.LADDERS[link]
    ladder = list(ladders.settings(link, "ladder").values())
    for before, after, name in zip(ladder, ladder[1:], order, strict=False):
        assert set(after) <= known
        assert {k for k in after if after[k] != before[k]} == {name}
        assert after[name]
    removed = ladders.settings(link, "removed")
    everything = removed[ladders.ON]
    assert removed[ladders.AGAIN] == everything
    for name, switches in list(removed.items())[2:]:
        assert {k for k in switches if switches[k] != everything[k]} == {name}
    for name in order:  # the top of the ladder has what `all on` has
        assert everything[name] == ladder[-1][name]
    for name, switches in list(ladders.settings(link, "alone").items())[1:]:
        assert {k for k in switches if switches[k] != ladder[0][k]} == {name}


def test_everything_on_is_what_the_system_does_by_itself() -> None:
    assert ladders.everything("plain") == get_system("pipad").switches(None)


def removed_row(technique: str, ratio: float, again: float = 1.0) -> Row:
    values = {technique: ratio, ladders.AGAIN: again}
    found = [
        observation("speedup", value, low=0.99 * value, high=1.01 * value, setting=name)
        for name in (ladders.AGAIN, *ladders.left_out("plain"))
        for value in [values.get(name, 1.0)]
    ]
    params = {"dataset": "hepth", "model": "tgcn_model", "link": "plain", "kind": "removed"}
    return made("ablation", params, found, deviation={"output": 0.0})


def test_a_technique_that_costs_time_is_named_unless_it_is_noise() -> None:
    costs = ablation.costs([removed_row("tuner", 0.8)])
    assert [key[-1] for key in costs] == ["tuner"]
    assert not ablation.costs([removed_row("tuner", 0.995)])
    assert not ablation.costs([removed_row("tuner", 0.95, again=1.1)])
    assert not ablation.costs([removed_row("tuner", 2.0)])
    assert "25 %" in ablation.Ablation().answer([removed_row("tuner", 0.8)])


def test_steps_that_mean_nothing_here_say_why() -> None:
    mine = ran(ablation.Ablation().cells("smoke", "cpu")[0])
    points = ablation.step_points([mine])
    said = {p["technique"]: p["failed"] for p in points if p.get("failed")}
    assert set(said) == set(ladders.REASONS)
    assert [p["technique"] for p in points if p.get("gain")] == list(ladders.LADDERS["plain"])
    assert mine.deviation["output"] <= 1e-5


def test_overlap_leaves_fewer_bytes_and_slices_fewer_still() -> None:
    task = workload(BY_NAME["flickr"], "evolvegcn", "smoke")
    chosen = ladders.settings("arena", "ladder")
    opened = {
        name: get_system("pipad").open(task, switches=chosen[name])
        for name in ("device_buffer", "overlap", "sliced_csr")
    }
    try:
        for trainer in opened.values():
            trainer.prepare()
        sent = turns.turns_of(opened, 3, 0.0).sent
    finally:
        for trainer in opened.values():
            trainer.close()
    assert sent["overlap"] < sent["device_buffer"]
    assert sent["sliced_csr"] < sent["overlap"]


def test_an_ablation_from_before_a_technique_is_still_told() -> None:
    found = [
        observation("speedup", 1.2, low=1.1, high=1.3, setting=name)
        for name in (ladders.AGAIN, *ladders.left_out("plain"))
        if name != "compiled_step"
    ]
    params = {"dataset": "hepth", "model": "tgcn_model", "link": "plain", "kind": "removed"}
    older = made("ablation", params, found, deviation={"output": 0.0})
    without = {key[-1] for key in ablation.removed([older])}
    assert without == {*ladders.left_out("plain")} - {"compiled_step"}


def test_what_a_compiled_step_has_built_in_is_left_out_of_single_operators() -> None:
    found = ladders.ratios_of("removed", list(ladders.settings("plain", "removed")))
    for name in ladders.BUILT_IN:
        assert found[name] == (name, "compiled_step")
    assert found["reuse"] == ("reuse", ladders.ON)
    device = ladders.ratios_of("removed", list(ladders.settings("device", "removed")), "device")
    assert device["fused_gates"] == ("fused_gates", ladders.ON)
    assert device["pipeline"] == ("pipeline", "compiled_step")
