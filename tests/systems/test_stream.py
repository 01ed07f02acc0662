"""Training on streams: its data, batches, memories and scores, against slow and obvious forms."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from itertools import product

import msgspec
import pytest
import torch
from fused import MultiplyAdd
from hypothesis import given
from hypothesis import strategies as st
from stream_tiny import tiny_events, tiny_stream, tiny_task

from dgbench.models.ctdg import STREAM_MODELS, MemoryRows
from dgbench.runtime.errors import InvalidInputError, UnknownKeyError
from dgbench.runtime.meter import Meter
from dgbench.systems.base import stream_memory
from dgbench.systems.base.plain_stream import PlainStream
from dgbench.systems.base.registry import get_system
from dgbench.systems.base.scores import average_precision
from dgbench.systems.base.stream import (
    StreamTrainer,
    batch_draw,
    batches,
    negatives,
    stream_data,
)
from dgbench.systems.base.stream_memory import VertexMemory
from dgbench.systems.gnnflow.experiments.trainer_checks import trainer_checks
from tests.witness.draws import average_precision as plain_average_precision

DOUBLE = torch.float64


def trainer_of(task, data=None, *, dtype=DOUBLE, kind=StreamTrainer, prepared=True, **shape):
    data = tiny_stream(task, **shape) if data is None else data
    trainer = kind(task, data, PlainStream(task, data), dtype=dtype)
    if prepared:
        trainer.prepare()
    return trainer


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=30))
def test_average_precision_is_the_area_by_thresholds(pairs) -> None:
    scores = torch.tensor([float(s) for s, _ in pairs])
    label = torch.tensor([int(y) for _, y in pairs])
    found = average_precision(scores, label)
    parts = [[score for score, one in pairs if one == on] for on in (True, False)]
    assert found == pytest.approx(plain_average_precision(*parts), nan_ok=True)


# --- data and batches -----------------------------------------------------------------------------


@pytest.mark.parametrize("bipartite", [False, True])
def test_negatives_of_a_prefix_are_destinations_that_occur_in_it(bipartite) -> None:
    """A vertex that is never a destination is told from one without any training."""
    whole = tiny_stream(tiny_task(), events=400, bipartite=bipartite).events
    task = tiny_task(events=40)
    few = replace(whole, dst=torch.where(torch.arange(400) < 40, 5 + whole.src % 2, whole.dst))
    drawn = negatives(task, stream_data(few, task), 0, 40)
    assert set(drawn.tolist()) == set(few.dst[:40].tolist())
    every = tiny_task(events=400)
    assert torch.equal(
        negatives(every, stream_data(few, every), 0, 40),
        negatives(task, stream_data(few, tiny_task()), 0, 40),
    )


@given(st.lists(st.integers(1, 30), max_size=12), st.integers(1, 12), st.integers(0, 4))
def test_batches_of_a_memory_end_where_time_values_end(runs, size, epoch) -> None:
    """And whether an event belongs to a batch hangs on nothing at its own time or later."""
    t = torch.arange(len(runs)).repeat_interleave(torch.tensor(runs, dtype=torch.int64)).double()
    events, task = torch.arange(t.numel()), tiny_task(batch=4 * size, chunks=4)
    parts = batches(task, events, t, epoch)
    assert torch.equal(torch.cat([*parts, events[:0]]), events)
    firsts = [0]  # of batches that begin with a time value
    for part in parts[1:]:
        if t[part[0]] != t[part[0] - 1]:
            firsts.append(int(part[0]))
        else:  # inside of one, which then is all that the batch has
            assert t[part[0]] == t[part[-1]]
    for part in parts[1:]:
        assert part.numel() <= 6 * size
    for last in range(1, t.numel() + 1):  # as if nothing came afterwards
        some = batches(task, events[:last], t[:last], epoch)
        begins = {int(part[0]) for part in some if part[0] == 0 or t[part[0]] != t[part[0] - 1]}
        assert begins == {first for first in firsts if first < last}


def test_draws_tell_batches_epochs_and_scoring_apart() -> None:
    task = tiny_task()
    train = {batch_draw(task, first, epoch) for first in range(50) for epoch in range(4)}
    assert len(train) == 200
    scored = {batch_draw(task, first, 0, scored=True) for first in range(50)}
    assert max(train) < 2**31 <= min(scored) <= max(scored) < 2**32


# --- the memory -----------------------------------------------------------------------------------


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


# --- the trainer ----------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["tgn", "tgat"])
def test_asking_changes_nothing(model) -> None:
    trainer = trainer_of(tiny_task(model, dropout=0.5))
    trainer.train(0, 30)
    state, memory = trainer.state(), trainer.memory_state()
    first = trainer.evaluate_range(30, 60)
    assert trainer.evaluate(3).shape[1] == 4
    assert torch.equal(trainer.evaluate(3), trainer.evaluate(3))
    assert trainer.loss(3) > 0
    trainer.gradients(3)
    assert trainer.evaluate_range(30, 60) == first
    assert first.n == 30
    assert all(torch.equal(state[name], value) for name, value in trainer.state().items())
    if memory is not None:
        for name in MemoryRows.__slots__:
            assert torch.equal(
                getattr(memory.rows, name), getattr(trainer.memory_state().rows, name)
            )
        trainer.evaluate_range(30, 60, remember=True)
        assert not torch.equal(memory.rows.mail, trainer.memory_state().rows.mail)
        trainer.reset_memory()
        assert not trainer.memory_state().rows.mail.any()


class Half(StreamTrainer):
    """Computes every second event of a batch."""

    which = 0

    def share(self, count):
        return torch.arange(self.which, count, 2)


@pytest.mark.parametrize("model", STREAM_MODELS)
def test_shares_of_a_batch_add_up_to_it(model) -> None:
    task = tiny_task(model, batch=9)
    data = tiny_stream(task)
    whole = trainer_of(task, data)
    halves = [trainer_of(task, data, kind=Half) for _ in range(2)]
    halves[1].which = 1
    expected = whole.gradients(4)
    parts = [half.gradients(4) for half in halves]
    for name, value in expected.items():
        torch.testing.assert_close(parts[0][name] + parts[1][name], value, rtol=1e-9, atol=1e-12)
    assert sum(half.loss(4) for half in halves) == pytest.approx(whole.loss(4))


def test_a_trainer_goes_on_from_another_and_counts() -> None:
    task = tiny_task(chunks=2)
    data, meter = tiny_stream(task), Meter(timing=True)
    first = StreamTrainer(task, data, PlainStream(task, data), dtype=DOUBLE, meter=meter)
    first.prepare()
    second = trainer_of(task, data)
    losses = [first.train(0, 60)]
    assert {"insert", "sample", "fetch", "compute", "memory", "update"} <= set(meter.phases())
    assert meter.counters["roots"] == 180
    assert meter.counters["edge_rows"] == meter.counters["sampled_edges"] + 60
    assert meter.counters["node_rows"] == meter.counters["memory_rows"]
    second.copy_from(first)
    losses += [first.train(30, 60), second.train(30, 60)]
    assert losses[1] == losses[2]


def test_bad_input_is_named() -> None:
    for name, fields in (
        ("batch", {"batch": 0}), ("batch", {"batch": True}), ("fanouts", {"fanouts": ()}),
        ("fanouts", {"fanouts": (3, 0)}), ("heads", {"heads": 3}), ("chunks", {"chunks": 3}),
        ("window", {"window": 0.0}), ("snapshots", {"snapshots": 2}), ("lr", {"lr": 0.0}),
        ("dropout", {"dropout": 1.0}), ("node_dim", {"node_dim": -1}), ("events", {"events": 0}),
        ("node_dim", {"model": "gat", "node_dim": 0}),
    ):  # fmt: skip
        with pytest.raises(InvalidInputError, match=name):
            tiny_task(**fields).check()
    with pytest.raises(UnknownKeyError, match="newest"):
        tiny_task(sampling="newest").check()
    with pytest.raises(UnknownKeyError, match="tgnn"):
        msgspec.structs.replace(tiny_task(), model="tgnn").check()
    with pytest.raises(InvalidInputError, match="events"):
        stream_data(tiny_events(0), tiny_task())
    nan = torch.tensor([0.0, float("nan")])
    for scores, label in ((torch.zeros(3), torch.zeros(2)), (nan, torch.tensor([0, 1]))):
        with pytest.raises(InvalidInputError):
            average_precision(scores, label)
    trainer = trainer_of(tiny_task(), prepared=False)
    assert trainer.train(5, 5) == 0
    found = trainer.evaluate_range(5, 5)
    assert (found.n, found.ap == found.ap) == (0, False)
    for (first, last), call in product(
        ((-1, 3), (4, 3), (0, 61)), (trainer.train, trainer.evaluate_range)
    ):
        with pytest.raises(InvalidInputError, match="events"):
            call(first, last)
    with pytest.raises(InvalidInputError, match="frame"):
        trainer.step(99)
    trainer.insert(20)
    trainer.insert(10)
    assert trainer.inserted == 20


# --- units of time --------------------------------------------------------------------------------

ARITHMETIC = {
    "torch": nullcontext,
    "fused": lambda: MultiplyAdd(fused=True),
    "unfused": lambda: MultiplyAdd(fused=False),
}


@pytest.mark.parametrize("arithmetic", ARITHMETIC)
@pytest.mark.parametrize("unit", [1e-3, 1.0, 86400.0, 8.64e13])
@pytest.mark.parametrize("model", ["tgat", "tgn"])
def test_the_unit_of_time_does_not_make_a_result_wrong(model, unit, arithmetic) -> None:
    """Products fused or not, in float32 against the float64 oracle."""
    task = tiny_task(model)
    events = tiny_events(120, 20, bipartite=True)
    data = stream_data(replace(events, t=(events.t - 100) * unit), task)
    with ARITHMETIC[arithmetic]():
        trainers = {name: get_system(name).open(task, data=data) for name in ("gnnflow", "tgl")}
        for trainer in trainers.values():
            trainer.insert(120)
            for frame in range(3):
                trainer.step(frame)
        checks = trainer_checks(trainers, task, data)
    assert all(check.passed for check in checks)
