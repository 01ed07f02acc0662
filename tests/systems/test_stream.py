"""Training on streams: memories that go back, units of time, and what is refused.

Batches, negatives, memories and scores are compared with a second implementation in
`test_stream_witness`.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from fused import MultiplyAdd
from hypothesis import given
from hypothesis import strategies as st
from stream_tiny import tiny_events, tiny_stream, tiny_task

from dgbench.models.ctdg import MemoryRows
from dgbench.runtime.errors import InvalidInputError, UnknownKeyError
from dgbench.systems.base import stream_memory
from dgbench.systems.base.plain_stream import PlainStream
from dgbench.systems.base.registry import get_system
from dgbench.systems.base.scores import average_precision
from dgbench.systems.base.stream import StreamTrainer, stream_data
from dgbench.systems.base.stream_memory import VertexMemory
from dgbench.systems.gnnflow.experiments.trainer_checks import trainer_checks

DOUBLE = torch.float64


def trainer_of(task, data=None, *, dtype=DOUBLE, kind=StreamTrainer, prepared=True, **shape):
    data = tiny_stream(task, **shape) if data is None else data
    trainer = kind(task, data, PlainStream(task, data), dtype=dtype)
    if prepared:
        trainer.prepare()
    return trainer


@pytest.fixture(scope="module")
def marked():
    """However few rows there are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream_memory, "SMALL", 0)
        yield


@pytest.mark.usefixtures("marked")
@given(st.data())
def test_memory_goes_back_to_any_moment(data) -> None:
    """Marks and copies taken in any order, beside copies alone."""
    memory, taken = VertexMemory(6, 2, 3, begin=7.0), []
    assert isinstance(memory.mark(), stream_memory.MemoryMark)
    for step in range(data.draw(st.integers(1, 12))):
        what = data.draw(st.sampled_from(["write", "mark", "restore", "copy", "reset", "forget"]))
        if what == "write":
            ids = torch.tensor(
                data.draw(st.lists(st.integers(0, 5), unique=True)), dtype=torch.int64
            )
            times = torch.full((ids.numel(),), float(step)).double()
            rows = MemoryRows(torch.full((ids.numel(), 2), float(step)), times,
                              torch.full((ids.numel(), 3), float(-step)), times)  # fmt: skip
            memory.write(ids, ids, rows)
        elif what == "mark":
            taken.append((memory.mark(), memory.state()))
        elif what == "reset":
            memory.reset()
        elif taken:
            at = data.draw(st.integers(0, len(taken) - 1))
            if what == "forget":
                del taken[at]
            else:
                memory.restore(taken[at][what == "copy"])
                assert_rows(memory.state(), taken[at][1])
    for mark, state in taken:
        memory.restore(mark)
        assert_rows(memory.state(), state)


def assert_rows(found, wanted):
    for name in MemoryRows.__slots__:
        assert torch.equal(getattr(found, name), getattr(wanted, name)), name


def test_bad_input_is_named() -> None:
    for name, fields in (
        ("batch", {"batch": 0}), ("fanouts", {"fanouts": ()}), ("fanouts", {"fanouts": (3, 0)}),
        ("heads", {"heads": 3}), ("chunks", {"chunks": 3}), ("window", {"window": 0.0}),
        ("snapshots", {"snapshots": 2}), ("lr", {"lr": 0.0}), ("dropout", {"dropout": 1.0}),
        ("node_dim", {"model": "gat", "node_dim": 0}), ("events", {"events": 0}),
    ):  # fmt: skip
        with pytest.raises(InvalidInputError, match=name):
            tiny_task(**fields).check()
    with pytest.raises(UnknownKeyError, match="newest"):
        tiny_task(sampling="newest").check()
    nan, trainer = torch.tensor([0.0, float("nan")]), trainer_of(tiny_task(), prepared=False)
    for call in (
        lambda: stream_data(tiny_events(0), tiny_task()), lambda: trainer.step(99),
        lambda: average_precision(torch.zeros(3), torch.zeros(2)),
        lambda: average_precision(nan, torch.tensor([0, 1])), lambda: trainer.train(-1, 3),
        lambda: trainer.train(4, 3), lambda: trainer.evaluate_range(0, 61),
    ):  # fmt: skip
        with pytest.raises(InvalidInputError):
            call()
    assert trainer.train(5, 5) == 0
    found = trainer.evaluate_range(5, 5)
    assert (found.n, found.ap == found.ap) == (0, False)
    for last in (20, 10):
        trainer.insert(last)
    assert trainer.inserted == 20


@pytest.mark.parametrize(
    ("model", "unit", "fused"),
    [("tgat", 1e-3, True), ("tgat", 8.64e13, False), ("tgn", 1e-3, False), ("tgn", 8.64e13, True)],
)
def test_the_unit_of_time_does_not_make_a_result_wrong(model, unit, fused) -> None:
    """Products fused or not, in float32 against the float64 oracle."""
    task = tiny_task(model)
    events = tiny_events(120, 20, bipartite=True)
    data = stream_data(replace(events, t=(events.t - 100) * unit), task)
    with MultiplyAdd(fused=fused):
        trainers = {name: get_system(name).open(task, data=data) for name in ("gnnflow", "tgl")}
        for trainer in trainers.values():
            trainer.insert(120)
            for frame in range(3):
                trainer.step(frame)
        checks = trainer_checks(trainers, task, data)
    assert all(check.passed for check in checks)
