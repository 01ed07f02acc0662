"""Causality over snapshots: no prediction rests on later ones, whatever the system and layout.

Edges, features and targets of every snapshot from one on are altered; all outputs before it must
stay the same.
"""

from __future__ import annotations

from typing import Any

import dgc_tiny
import pytest
import torch
from tiny_data import TinySequence, serve, tiny_sequence, tiny_workload
from torch import Tensor

from dgbench.datasets import SnapshotSequence
from dgbench.models import FRAME_MODELS, SEQUENCE_MODELS, TIMELINE_MODELS
from dgbench.systems.base import find_system, timeline
from dgbench.systems.base.plain_sequences import PlainSequences
from dgbench.systems.base.sequences import SequenceWorkload
from dgbench.systems.base.timeline import PlainTimeline, TimelineWorkload
from dgbench.systems.dgc import DgcSystem
from dgbench.systems.dgc import system as dgc_system
from dgbench.systems.dgc.partition import ChunkSettings
from dgbench.systems.dgc.settings_run import ChunkRankSettings
from dgbench.systems.esdg import EsdgSystem, EsdgTrainer

FRAME_SYSTEMS = ("reference", "pygt", "pygt-a", "pygt-r", "pygt-g", "pipad")
SMALL = ChunkRankSettings(chunks=ChunkSettings(per_worker=3, workload="edges"))
FIRST = 6
"""First snapshot that is altered."""


def altered(data: Any, seed: int) -> Any:
    """The sequence with other snapshots from `FIRST` on."""
    other = tiny_sequence(data.num_nodes, len(data), 40, data.features.shape[2], seed=seed)
    features, targets = data.features.clone(), data.targets.clone()
    features[FIRST:], targets[FIRST:] = other.features[FIRST:], other.targets[FIRST:]
    topology = [*list(data.topology)[:FIRST], *other.topology[FIRST:]]
    if isinstance(data, TinySequence):
        return TinySequence(topology, features, targets, data.num_nodes)
    return SnapshotSequence(topology, features, targets, data.num_nodes, data.origin)


@pytest.mark.parametrize("model", FRAME_MODELS)
@pytest.mark.parametrize("system", FRAME_SYSTEMS)
def test_frames(monkeypatch, system, model) -> None:
    """Frames share work with later ones (overlap, reuse, partitions), and nothing else."""
    data, task = tiny_sequence(snapshots=11), tiny_workload(model=model)
    found = []
    for given in (data, altered(data, 5)):
        serve(monkeypatch, given)
        trainer = find_system(system).open(task, device="cpu")
        trainer.prepare()
        found.append([trainer.evaluate(frame) for frame in range(trainer.num_frames)])
        trainer.close()
    before = FIRST - task.frame + 1
    for one, other in zip(*(outputs[:before] for outputs in found), strict=True):
        assert (one - other).abs().max() < 1e-6
    assert not torch.allclose(found[0][-1], found[1][-1])


LAYOUTS = {
    "plain": None,
    "one block": {"nb": 1},
    "blocks": {"nb": 4},
    "blocks, arena": {"nb": 4, "switches": {"arena": True}},
    "the paper's": {"nb": 3, "switches": {"lean": False, "interleave": False, "fallback": False}},
}


@pytest.mark.parametrize("model", TIMELINE_MODELS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_timelines(layout, model) -> None:
    task = TimelineWorkload(dataset="tiny", model=model, task="link", window=3)
    data = tiny_sequence(snapshots=11, features=task.feature_dim)

    def outputs(given: Any) -> list[Tensor]:
        options = LAYOUTS[layout]
        if options is None:
            trainer = PlainTimeline(task, given)
        else:
            switches = EsdgSystem().switches(options.get("switches"))
            trainer = EsdgTrainer(task, given, switches, nb=options["nb"])
        return [out.detach() for out in trainer.outputs()]

    one, other = (outputs(given) for given in (data, altered(data, 5)))
    for a, b in zip(one[:FIRST], other[:FIRST], strict=True):
        assert (a - b).abs().max() < 1e-6
    assert any(not torch.allclose(a, b) for a, b in zip(one[FIRST:], other[FIRST:], strict=True))


@pytest.mark.parametrize("smoothing", timeline.SMOOTHINGS)
def test_smoothing_looks_back_only(smoothing) -> None:
    task = TimelineWorkload(dataset="tiny", model="cd_gcn", smoothing=smoothing, edge_life=3)
    tiny = tiny_sequence(snapshots=11)
    data = SnapshotSequence(tiny.topology, tiny.features, tiny.targets, 12, tiny.origin)
    one, other = (timeline.smooth(given, task) for given in (data, altered(data, 5)))
    for a, b in zip(one.topology[:FIRST], other.topology[:FIRST], strict=True):
        assert torch.equal(a.indptr, b.indptr)
        assert torch.equal(a.indices, b.indices)
        assert (a.values is None) == (b.values is None)
        assert a.values is None or torch.equal(a.values, b.values)


def step_moves(monkeypatch, task: SequenceWorkload, workers: int) -> float:
    """Largest move of outputs of steps before `FIRST`, of vertices that exist either way."""
    data = dgc_tiny.random_sequence(12, 11, 30, seed=2)
    found = []
    for given in (data, altered(data, 5)):
        if workers:
            monkeypatch.setattr(dgc_system, "load_sequences", lambda _, given=given: given)
            trainer = DgcSystem().open(task, settings=SMALL, workers=workers)
        else:
            trainer = PlainSequences(task, given)
        outputs, graph = trainer.evaluate(), trainer.graph
        keys = zip(graph.entity.tolist(), graph.step.tolist(), strict=True)
        found.append({key: row for key, row in zip(keys, outputs, strict=True) if key[1] < FIRST})
    common = found[0].keys() & found[1].keys()
    assert len(common) > 20
    return max(float((found[0][key] - found[1][key]).abs().max()) for key in common)


@pytest.mark.parametrize("model", SEQUENCE_MODELS)
@pytest.mark.parametrize("workers", [0, 1, 4])
def test_vertex_steps(monkeypatch, workers, model) -> None:
    """A vertex-step exists where a later edge of its vertex does; what it holds is of the past."""
    task = dgc_tiny.tiny_workload(model, causal=True)
    assert step_moves(monkeypatch, task, workers) < 1e-6


@pytest.mark.parametrize("workers", [0, 4])
def test_attention_to_all_steps_sees_later_ones(monkeypatch, workers) -> None:
    """Purpose of the switch, and proof that these tests would detect a leak."""
    assert step_moves(monkeypatch, dgc_tiny.tiny_workload("dysat"), workers) > 1e-4
