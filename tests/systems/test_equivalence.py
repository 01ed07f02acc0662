"""Every exact system against the reference: outputs, losses, gradients and trained parameters."""

from __future__ import annotations

import itertools
from functools import cache
from typing import NamedTuple

import pytest
import torch
from tiny_data import serve, tiny_sequence, tiny_workload

from dgbench.systems.base import Broken, find_system, system_names
from dgbench.systems.reference import ReferenceSystem

SYSTEMS = ("reference", "pygt", "pygt-a", "pygt-r", "pygt-g", "pipad")
MODELS = (("tgcn_model", "gru"), ("evolvegcn", "gru"), ("evolvegcn", "lstm"), ("mpnn_lstm", "gru"))
TOLERANCE = 1e-5


def task_of(model, norm, task, loss_on):
    return tiny_workload(
        model=model[0], cell=model[1], norm=norm, task=task, loss_on=loss_on, lr=1e-2
    )


def can_run(name, *workload):
    """Return True if the system offers such a workload; one that does not load is skipped by its
    test."""
    if name not in system_names() or isinstance(system := find_system(name), Broken):
        return True
    return not system.unsupported(task_of(*workload), "cpu")


CASES = [
    (*case, name)
    for *case, name in itertools.product(
        MODELS, ("sym", "mean"), ("node", "link"), ("last", "every"), ("plain", "weighted"), SYSTEMS
    )
    if can_run(name, *case[:4])
]


def distance(got: torch.Tensor, want: torch.Tensor, scale: float | None = None) -> float:
    """Norm of the difference relative to the norm of what is wanted."""
    want = want.double()
    size = float(want.norm()) if scale is None else scale
    return float((got.double() - want).norm()) / max(size, 1e-30)


def opened(name: str, workload):
    """The system's trainer on the workload, or a skip with the reason."""
    if name not in system_names():
        pytest.skip(f"{name} is not registered")
    system = find_system(name)
    if isinstance(system, Broken):
        pytest.skip(f"{name} does not load: {system.reason}")
    if reasons := system.unsupported(workload, "cpu"):
        pytest.skip("; ".join(reasons))
    trainer = system.open(workload)
    trainer.prepare()
    return trainer


class ReferenceTrace(NamedTuple):
    """Reference in float64: outputs and gradients of both end frames, losses, parameter names."""

    ends: dict[int, tuple[torch.Tensor, dict[str, torch.Tensor]]]
    losses: list[float]
    parameters: set[str]


@cache
def reference_trace(work, weights) -> ReferenceTrace:
    """Trace of a workload on the graph that is being served; `weights` tells the graphs apart."""
    oracle = ReferenceSystem(torch.float64).open(work)
    frames = (0, oracle.num_frames - 1)
    ends = {frame: (oracle.evaluate(frame), oracle.gradients(frame)) for frame in frames}
    losses = [oracle.step(frame) for frame in range(oracle.num_frames)]
    return ReferenceTrace(ends, losses, set(oracle.state()))


@pytest.mark.parametrize(("model", "norm", "task", "loss_on", "weights", "name"), CASES)
def test_equal_to_the_reference(monkeypatch, name, model, norm, task, loss_on, weights):
    serve(monkeypatch, tiny_sequence(weighted=weights == "weighted"))
    work = task_of(model, norm, task, loss_on)
    trainer, oracle = opened(name, work), reference_trace(work, weights)
    for frame, (output, want) in oracle.ends.items():
        assert distance(trainer.evaluate(frame), output) < TOLERANCE
        got = trainer.gradients(frame)
        assert set(got) == set(want)
        # A parameter with no influence (a bias before a batch norm) has a gradient of rounding
        # errors, so each is held to the norm of all of them together.
        whole = float(torch.cat([g.flatten() for g in want.values()]).norm())
        assert whole > 0
        for key in want:
            assert got[key].shape == want[key].shape, key
            assert distance(got[key], want[key], whole) < TOLERANCE, key
    assert trainer.num_frames == len(oracle.losses)
    losses = [trainer.step(frame) for frame in range(trainer.num_frames)]
    assert losses == pytest.approx(oracle.losses, rel=TOLERANCE)
    assert set(trainer.state()) == oracle.parameters


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("model", ["tgcn_model", "evolvegcn", "mpnn_lstm"])
def test_small_frames_and_graphs_without_edges(monkeypatch, name, model):
    serve(monkeypatch, tiny_sequence(nodes=3, edges=0, snapshots=3))
    work = tiny_workload(model=model, frame=1)
    trainer, reference = opened(name, work), find_system("reference").open(work)
    assert trainer.num_frames == 2
    assert distance(trainer.evaluate(1), reference.evaluate(1)) < TOLERANCE
    assert trainer.step(0) == pytest.approx(reference.step(0), rel=TOLERANCE)
