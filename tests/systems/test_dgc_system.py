"""DGC as a plugin: switches of one process, and what it says of itself."""

from __future__ import annotations

import pytest
import torch
from dgc_tiny import random_sequence, tiny_workload
from hypothesis import given, settings
from hypothesis import strategies as st

from dgbench.lab.result_checks import largest
from dgbench.models import SEQUENCE_MODELS
from dgbench.runtime.errors import InvalidInputError, UnknownKeyError
from dgbench.systems.base.plain_sequences import PlainSequences
from dgbench.systems.base.race import relative
from dgbench.systems.base.workload import Workload
from dgbench.systems.dgc.partition import ChunkSettings, bundled
from dgbench.systems.dgc.settings_run import ChunkRankSettings
from dgbench.systems.dgc.system import DgcSystem

SMALL = ChunkRankSettings(chunks=ChunkSettings(per_worker=3, workload="edges"))
DATA = random_sequence(30, 8, 12, 3)
SWITCHES = ("pgc", "refine", "predictor", "spatial_fusion", "temporal_fusion", "precompute")


@pytest.fixture
def system(monkeypatch):
    monkeypatch.setattr("dgbench.datasets.open_snapshots", lambda spec: DATA)
    return DgcSystem()


@pytest.mark.parametrize("model", SEQUENCE_MODELS)
def test_exact_switches_train_as_the_reference(system, model):
    work = tiny_workload(model)
    oracle = PlainSequences(work, DATA, dtype=torch.float64)
    output, gradients = oracle.evaluate(), oracle.gradients()
    losses = [oracle.train_epoch() for _ in range(3)]
    accuracy = oracle.accuracy()
    flips = [{}, *({name: None} for name in SWITCHES), dict.fromkeys(SWITCHES)]
    for flip in flips:
        on = system.switches()
        on |= {name: not on[name] for name in flip}
        trainer = system.open(work, switches=on, settings=SMALL, dtype=torch.float64)
        trainer.prepare()
        assert relative(trainer.evaluate(), output) < 1e-6
        assert largest(trainer.gradients(), gradients) < 1e-6
        assert [trainer.step(0) for _ in range(3)] == pytest.approx(losses, rel=1e-6)
        assert trainer.accuracy() == pytest.approx(accuracy)
        assert largest(trainer.state(), oracle.state()) < 1e-4
        trainer.close()


def test_what_it_cannot_run_it_says(system):
    assert system.unsupported(tiny_workload(), "cpu") == []
    other = Workload(dataset="tiny", model="tgcn_model")
    assert "SequenceWorkload" in system.unsupported(other, "cpu")[0]
    with pytest.raises(UnknownKeyError, match="fuse"):
        system.open(tiny_workload(), switches={"fuse": True})
    with pytest.raises(InvalidInputError, match="workers"):
        system.open(tiny_workload(), workers=0)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 60), st.integers(1, 30), st.integers(1, 4), st.integers(1, 9))
def test_small_chunks_are_bundled_inside_a_worker(vertices, chunks, workers, cap):
    draw = torch.Generator().manual_seed(vertices * 31 + chunks)
    owner = torch.randint(0, workers, (chunks,), generator=draw, dtype=torch.int32)
    chunk = torch.randint(0, chunks, (vertices,), generator=draw, dtype=torch.int32)
    joined, count = bundled(chunk, chunks, owner[chunk.long()], cap)
    assert sorted(set(joined.tolist())) == list(range(count))
    homes, parts = {}, {}
    for old, new in zip(chunk.tolist(), joined.tolist(), strict=True):
        assert homes.setdefault(new, int(owner[old])) == int(owner[old])
        parts.setdefault(new, set()).add(old)
    assert sum(map(len, parts.values())) == len(set(chunk.tolist()))  # none is torn apart
    sizes = torch.bincount(chunk, minlength=chunks)
    for some in parts.values():
        assert len(some) == 1 or int(sizes[list(some)].sum()) <= max(cap, 2)
    half = max(1, cap // 2)
    for worker in range(workers):
        made = [new for new, home in homes.items() if home == worker]
        small = [new for new in made if int(sizes[list(parts[new])].max()) <= half]
        total = sum(int(sizes[list(parts[new])].sum()) for new in small)
        assert len(small) <= total // half + 1
