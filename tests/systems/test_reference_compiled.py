"""torch.compile over the reference: the same numbers, one compilation, a reason without one."""

from __future__ import annotations

import pytest
import torch
from tiny_data import serve, tiny_sequence, tiny_workload, trace_only

from dgbench.runtime.errors import UnsupportedError
from dgbench.systems.base import RunContext, get_system
from dgbench.systems.base.race import relative, timed
from dgbench.systems.reference import ReferenceSystem, compiled

pytestmark = pytest.mark.machines_arithmetic


def opened(monkeypatch, backend: str, **changes):
    """A prepared trainer and its reference in float64; snapshots differ in their edges."""
    data = tiny_sequence()
    assert len({csr.nnz for csr in data.topology}) > 1
    serve(monkeypatch, data)
    if reason := compiled.lacking("cpu"):
        pytest.skip(reason)
    if backend != "inductor":
        trace_only(monkeypatch, backend)
    work = tiny_workload(lr=1e-2, **changes)
    trainer = get_system("compiled").open(work)
    trainer.prepare()
    return trainer, ReferenceSystem(torch.float64).open(work)


def assert_equal(trainer, oracle) -> None:
    for frame in (0, oracle.num_frames - 1):
        assert relative(trainer.evaluate(frame), oracle.evaluate(frame)) < 1e-5
        got, want = trainer.gradients(frame), oracle.gradients(frame)
        assert got.keys() == want.keys()
        whole = torch.cat([g.flatten() for g in want.values()])
        assert relative(torch.cat([got[k].flatten() for k in want]), whole) < 1e-5
    for frame in range(oracle.num_frames):
        assert trainer.step(frame) == pytest.approx(oracle.step(frame), rel=1e-5)


@pytest.mark.parametrize(
    ("model", "loss_on", "task"),
    [("tgcn_model", "last", "node"), ("tgcn_model", "every", "link"),
     ("evolvegcn", "last", "link"), ("evolvegcn", "every", "node"),
     ("mpnn_lstm", "last", "link"), ("mpnn_lstm", "every", "node")],
)  # fmt: skip
def test_traced_as_the_reference_and_once(monkeypatch, model, loss_on, task):
    trainer, oracle = opened(
        monkeypatch, "aot_eager", model=model, loss_on=loss_on, task=task, frame=2
    )
    assert_equal(trainer, oracle)
    assert trainer.meter.counters["recompilations"] == 0
    assert 0 < trainer.padding < 1
    assert "compiled 1 graph in" in trainer.notes[0]


def test_without_a_compiler_it_says_so(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    (reason,) = get_system("compiled").unsupported(tiny_workload(), "cpu")
    assert "no-such-compiler" in reason
    with pytest.raises(UnsupportedError, match="no-such-compiler"):
        timed("compiled", tiny_workload(), RunContext("cpu", "smoke", 1))
