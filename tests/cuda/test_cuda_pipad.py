"""PiPAD end to end where inputs really travel: on a CUDA device, and over a CPU's arena.

The arena shows on any machine that these tests can pass; what is CUDA's own is marked.
"""

from __future__ import annotations

import pytest
import torch
from tiny_data import serve, tiny_sequence, tiny_workload

from dgbench.systems.pipad import PipadSystem
from dgbench.systems.reference import ReferenceSystem

MODELS = ("tgcn_model", "evolvegcn", "mpnn_lstm")
DEFAULTS = {t.name: t.default for t in PipadSystem.techniques if t.name != "arena"}
EXACT = [t.name for t in PipadSystem.techniques if t.exact and t.name in DEFAULTS]
STEPS = 12
FRAME = 4


def opened(place: str, task, switches: dict[str, bool] | None = None, *, s_per: int | None = 3):
    """A trainer whose inputs travel, after its preparation."""
    switches = dict(switches or {})
    if place == "arena":
        switches["arena"] = True
    device = "cuda" if place == "cuda" else "cpu"
    trainer = PipadSystem(s_per=s_per).open(task, device=device, switches=switches)
    trainer.prepare()
    return trainer


def train(trainer, steps: int) -> list[float]:
    return [trainer.step(i % trainer.num_frames) for i in range(steps)]


def deviation(trainer, reference) -> float:
    """Of all parameters after training, but those whose gradient is rounding.

    Adam turns a gradient of any size into a step of one size. A bias before a batch norm has no
    influence; its gradient is rounding and so is where it goes.
    """
    gradients = reference.gradients(0)
    whole = float(torch.cat([g.double().flatten() for g in gradients.values()]).norm())
    got, want = trainer.state(), reference.state()
    judged = [k for k in want if float(gradients[k].norm()) > 1e-4 * whole]
    assert judged
    gap = sum(float((got[k].double() - want[k].double()).square().sum()) for k in judged)
    size = sum(float(want[k].double().square().sum()) for k in judged)
    return (gap / size) ** 0.5


SETTINGS = [
    {},
    {**dict.fromkeys(DEFAULTS, False)},
    *({name: not DEFAULTS[name]} for name in EXACT),
    {"slice_coalescing": True, "reuse": False, "cache_rule": False},
    {"reuse": False, "cache_rule": False},
]
CASES = [(model, on, False) for model in MODELS for on in SETTINGS[:2]]
# Every switch with every model on a CPU: tests/systems/test_pipad_switches.py.
CASES += [(MODELS[i % len(MODELS)], on, False) for i, on in enumerate(SETTINGS[2:])]
OFF = ({}, *({name: False} for name in ("overlap", "reuse", "sliced_csr")))
CASES += [(MODELS[1 + i % 2], on, True) for i, on in enumerate(OFF)]


@pytest.mark.parametrize(("model", "switches", "weighted"), CASES, ids=str)
def test_every_exact_switch_is_the_reference_after_training(
    monkeypatch, place, model, switches, weighted
):
    serve(monkeypatch, tiny_sequence(nodes=15, edges=60, snapshots=8, weighted=weighted))
    norm = {"norm": "mean"} if weighted else {}
    task = tiny_workload(model=model, frame=FRAME, loss_on="every", **norm)
    device = "cuda" if place == "cuda" else "cpu"
    reference = ReferenceSystem(torch.float64).open(task, device=device)
    wanted = train(reference, STEPS)
    trainer = opened(place, task, switches)
    assert train(trainer, STEPS) == pytest.approx(wanted, rel=1e-5)
    assert deviation(trainer, reference) < 1e-5
    counters = trainer.meter.counters
    assert counters["bytes_h2d_moved"] == counters["bytes_h2d_counted"] > 0
    trainer.close()


@pytest.mark.parametrize("model", MODELS)
def test_double_buffering_gives_the_same_numbers(monkeypatch, place, model):
    """Copies that run beside the compute never reach memory that is still read."""
    size = {"nodes": 600, "edges": 3000} if place == "cuda" else {"nodes": 60, "edges": 200}
    serve(monkeypatch, tiny_sequence(**size, snapshots=10, features=8))
    task = tiny_workload(model=model, frame=FRAME, feature_dim=8, hidden_dim=16, lr=1e-2)
    plain = opened(place, task, {"pipeline": False}, s_per=1)
    wanted = train(plain, 2 * plain.num_frames)
    plain.close()
    for s_per in (1, 2, 4):
        trainer = opened(place, task, {"pipeline": True}, s_per=s_per)
        assert train(trainer, 2 * trainer.num_frames) == pytest.approx(wanted, rel=1e-5)
        trainer.close()


# --- CUDA's own -----------------------------------------------------------------------------------


@pytest.mark.cuda
@pytest.mark.usefixtures("usable_device")
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("loss_on", ["last", "every"])
def test_cuda_graphs_change_nothing_but_launches(monkeypatch, model, loss_on, fused):
    serve(monkeypatch, tiny_sequence(nodes=50, edges=200, snapshots=10))
    task = tiny_workload(model=model, frame=FRAME, loss_on=loss_on, lr=1e-2)
    losses, states = [], []
    for graphs in (False, True):
        switches = {"cuda_graphs": graphs, "fused_gates": fused}
        trainer = opened("cuda", task, switches)
        losses.append(train(trainer, STEPS))
        states.append(trainer.state())
        if graphs:
            assert not trainer.stages.reasons()
        trainer.close()
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    for name, value in states[0].items():
        torch.testing.assert_close(states[1][name], value, rtol=1e-3, atol=1e-4)


@pytest.mark.cuda
@pytest.mark.usefixtures("usable_device")
@pytest.mark.parametrize("model", MODELS)
def test_a_steady_step_does_not_wait_for_the_device(monkeypatch, model):
    """No hidden copy from or to pageable memory, and the loss comes home when it is ready."""
    serve(monkeypatch, tiny_sequence(nodes=50, edges=200, snapshots=10))
    trainer = opened("cuda", tiny_workload(model=model, frame=FRAME, loss_on="every"))
    train(trainer, 2 * trainer.num_frames)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        loss = trainer.enqueue(0)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert loss.value() > 0
    trainer.close()
