"""PiPAD's stages by what a capture in a CUDA graph demands, with a stand-in for the capture."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tiny_data import serve, tiny_sequence, tiny_workload
from torch import Tensor, nn

from dgbench.runtime import graphs
from dgbench.runtime.errors import UnsupportedError
from dgbench.systems.pipad import PipadSystem
from dgbench.systems.pipad.forward import Stages

STAGES = {"tgcn_model": 1, "evolvegcn": 3, "mpnn_lstm": 3}


class Passed(torch.autograd.Function):
    """Results as a replay gives them: of a node in Python."""

    @staticmethod
    def forward(ctx: Any, *outputs: Tensor) -> tuple[Tensor, ...]:
        return tuple(output.view_as(output) for output in outputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        return grads


def leaves_of(outputs: tuple[Tensor, ...]) -> set[Tensor]:
    """The tensors that an autograd graph hands gradients to."""
    found, seen = set(), set()
    todo = [output.grad_fn for output in outputs]
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        found |= {node.variable} if hasattr(node, "variable") else set()
        todo += [function for function, _ in node.next_functions]
    return found


@pytest.mark.parametrize(
    ("loss_on", "switches"),
    [("last", {}), ("every", {"fused_gates": False}), ("every", {"weight_reuse": False})],
)
@pytest.mark.parametrize("model", STAGES)
def test_every_stage_can_be_captured(monkeypatch, model, loss_on, switches) -> None:
    """Results are tensors, and gradients go to tensors that no other stage knows."""
    serve(monkeypatch, tiny_sequence(nodes=15, edges=50, snapshots=13))
    captured = []

    def capture(function, samples):
        outputs, alone = graphs.outputs_of(function(*samples))
        leaves = leaves_of(outputs)
        assert leaves
        assert leaves <= set(samples)
        assert not any(isinstance(leaf, nn.Parameter) for leaf in leaves)
        captured.append(alone)

        def graphed(*tensors):
            found = Passed.apply(*graphs.outputs_of(function(*tensors))[0])
            return found[0] if alone else found

        return graphed

    monkeypatch.setattr(graphs, "capture", capture)
    monkeypatch.setattr(graphs, "on_device", lambda tensors: True)
    work = tiny_workload(model=model, loss_on=loss_on)
    switches = {**switches, "compiled_step": False}  # which has no stages
    plain = PipadSystem().open(work, switches=switches)
    staged = PipadSystem().open(work, switches=switches)
    staged.stages = Stages(staged.model, enabled=True)
    assert [staged.step(i) for i in range(3)] == [plain.step(i) for i in range(3)]
    assert len(captured) == STAGES[model]
    assert not staged.stages.reasons()


def test_a_stage_that_cannot_be_captured_ends_training(monkeypatch) -> None:
    serve(monkeypatch, tiny_sequence(nodes=15, edges=50, snapshots=13))

    def refuse(function, samples):
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(graphs, "capture", refuse)
    monkeypatch.setattr(graphs, "on_device", lambda tensors: True)
    trainer = PipadSystem().open(tiny_workload(), switches={"compiled_step": False})
    trainer.stages = Stages(trainer.model, enabled=True)
    with pytest.raises(UnsupportedError):
        trainer.step(0)
    trainer.close()
