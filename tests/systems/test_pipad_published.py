"""PiPAD as published: the paper's kernel aggregates everything, on a CPU and over a link."""

from __future__ import annotations

from contextlib import closing

import pytest
import torch
from tiny_data import serve, tiny_sequence, tiny_workload

from dgbench.systems.base.race import relative
from dgbench.systems.pipad import PipadSystem, kernels, paper_kernel
from dgbench.systems.pipad.ladders import PUBLISHED, stage
from dgbench.systems.reference import ReferenceSystem

MODELS = ("tgcn_model", "evolvegcn", "mpnn_lstm")


@pytest.mark.parametrize("s_per", [1, 3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("arena", [False, True])
@pytest.mark.parametrize("model", MODELS)
def test_the_published_form_is_the_reference(monkeypatch, model, arena, weighted, s_per) -> None:
    serve(monkeypatch, tiny_sequence(nodes=15, edges=50, snapshots=8, weighted=weighted))
    task = tiny_workload(model=model, loss_on="every", lr=1e-2)
    truth = ReferenceSystem(torch.float64).open(task)
    switches = stage(PUBLISHED) | {"arena": arena}
    with closing(PipadSystem(s_per=s_per).open(task, switches=switches)) as mine:
        mine.prepare()
        got, want = mine.gradients(0), truth.gradients(0)
        whole = float(torch.cat([g.flatten() for g in want.values()]).norm())
        for name, gradient in want.items():
            assert float((got[name].double() - gradient).norm()) < 1e-5 * whole, name
        losses = [(mine.step(i), truth.step(i)) for i in range(truth.num_frames)]
        assert all(a == pytest.approx(b, rel=1e-5) for a, b in losses)
        assert relative(mine.evaluate(1), truth.evaluate(1)) < 1e-4


@pytest.mark.parametrize("reuse", [True, False])
@pytest.mark.parametrize("s_per", [1, 2])
@pytest.mark.parametrize("arena", [False, True])
def test_algorithm_1_alone_aggregates(monkeypatch, arena, s_per, reuse) -> None:
    """In preparation and in training, forward and backward, whatever a partition holds."""

    def ours(*_, **__):
        raise AssertionError("a product of ours")

    for node in (kernels.PartitionAggregation, kernels.SnapshotAggregation,
                 kernels.ReceivedAggregation):  # fmt: skip
        monkeypatch.setattr(node, "apply", ours)
    monkeypatch.setattr(kernels, "aggregate_parts_scatter", ours)
    widths: dict[str, list[tuple[int, ...]]] = {}
    for name in ("aggregate_parts_sliced", "scatter_parts_sliced"):
        run, taken = getattr(paper_kernel, name), widths.setdefault(name, [])

        def counted(parts, x, run=run, taken=taken, **named):
            taken.append(tuple(x.shape))
            return run(parts, x, **named)

        monkeypatch.setattr(paper_kernel, name, counted)
    serve(monkeypatch, tiny_sequence(nodes=15, edges=50, snapshots=8))
    switches = stage(PUBLISHED) | {"arena": arena, "reuse": reuse}
    task = tiny_workload(model="evolvegcn", frame=4)
    with closing(PipadSystem(s_per=s_per).open(task, switches=switches)) as trainer:
        trainer.prepare()
        trainer.step(0)
        for taken in widths.values():
            taken.clear()
        trainer.step(1)
    forward, backward = widths.values()
    hidden = [shape for shape in forward if shape == (15, s_per, task.hidden_dim)]
    assert len(hidden) == (4 // s_per) * (1 if arena else 2)  # the transpose is gathered from, too
    assert len(backward) == (4 // s_per if arena else 0)
    assert (len(forward) > len(hidden)) == (not reuse)
