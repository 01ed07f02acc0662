"""Training on streams: its data, batches, memories and scores, against slow and obvious forms."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from stream_tiny import tiny_events, tiny_stream, tiny_task

from dgbench.models.ctdg import STREAM_MODELS, MemoryRows
from dgbench.runtime.errors import InvalidInputError, UnknownKeyError
from dgbench.runtime.meter import Meter
from dgbench.systems.base import stream_memory
from dgbench.systems.base.plain_stream import PlainStream
from dgbench.systems.base.scores import average_precision
from dgbench.systems.base.stream import (
    StreamTrainer,
    batch_draw,
    batches,
    negatives,
    negatives_of,
    stream_data,
)
from dgbench.systems.base.stream_memory import VertexMemory
from tests.witness.draws import average_precision as plain_average_precision

DOUBLE = torch.float64


def trainer_of(task, data=None, *, dtype=DOUBLE, kind=StreamTrainer, prepared=True, **shape):
    data = tiny_stream(task, **shape) if data is None else data
    trainer = kind(task, data, PlainStream(task, data), dtype=dtype)
    if prepared:
        trainer.prepare()
    return trainer


# --- scores ---------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=30))
def test_average_precision_is_the_area_by_thresholds(pairs) -> None:
    scores = torch.tensor([float(s) for s, _ in pairs])
    label = torch.tensor([int(y) for _, y in pairs])
    found = average_precision(scores, label)
    parts = [[score for score, one in pairs if one == on] for on in (True, False)]
    assert found == pytest.approx(plain_average_precision(*parts), nan_ok=True)


def test_scores_that_cannot_be_ranked_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="equally long"):
        average_precision(torch.zeros(3), torch.zeros(2))
    with pytest.raises(InvalidInputError, match="finite"):
        average_precision(torch.tensor([0.0, float("nan")]), torch.tensor([0, 1]))


# --- data -----------------------------------------------------------------------------------------


def test_data_keeps_the_first_events_and_draws_what_is_not_there() -> None:
    events = tiny_events(20)
    data = stream_data(events, tiny_task(events=7))
    assert len(data.events) == 7
    assert data.events.eid.tolist() == list(range(7))
    assert torch.equal(data.events.src, events.src[:7])
    assert data.node_feat.shape == (8, 3)
    assert data.edge_feat.shape == (7, 2)
    assert len(data.notes) == 2
    assert "random" in data.notes[0]
    again = stream_data(events, tiny_task(events=7))
    assert torch.equal(again.node_feat, data.node_feat)
    assert data.describe()["dataset"] == "tiny"
    assert "random features of edges" in data.describe()["note"]


def test_data_takes_features_of_the_right_width_only() -> None:
    src = torch.tensor([0, 1])
    held = tiny_events(2).build(src, src, [0, 1], edge_feat=torch.ones(2, 2))
    assert torch.equal(stream_data(held, tiny_task()).edge_feat, torch.ones(2, 2))
    drawn = stream_data(held, tiny_task(edge_dim=3))
    assert drawn.edge_feat.shape == (2, 3)
    assert "the data has 2" in " ".join(drawn.notes)
    assert stream_data(held, tiny_task(edge_dim=0)).edge_feat is None
    with pytest.raises(InvalidInputError, match="no events"):
        stream_data(tiny_events(0), tiny_task())


@pytest.mark.parametrize("bipartite", [False, True])
def test_negatives_are_functions_of_events_alone(bipartite) -> None:
    task = tiny_task()
    data = tiny_stream(task, events=400, bipartite=bipartite)
    whole = negatives(task, data, 0, 400)
    assert torch.equal(whole[30:77], negatives(task, data, 30, 77))
    order = torch.randperm(400)
    assert torch.equal(negatives_of(task, data, order), whole[order])
    allowed = range(4, 8) if bipartite else range(8)
    counts = torch.bincount(whole, minlength=8)
    assert set(whole.tolist()) == set(allowed)
    assert counts[list(allowed)].min() > 400 / len(allowed) / 2
    other = negatives(msgspec.structs.replace(task, seed=2), data, 0, 400)
    assert (whole != other).float().mean() > 0.5


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


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"batch": 0}, "batch"), ({"batch": True}, "batch"), ({"fanouts": ()}, "fanouts"),
        ({"fanouts": (3, 0)}, "fanouts"), ({"heads": 3}, "heads"), ({"chunks": 3}, "chunks"),
        ({"window": 0.0}, "window"), ({"snapshots": 2}, "snapshots"), ({"dropout": 1.0}, "dropout"),
        ({"lr": 0.0}, "lr"), ({"node_dim": -1}, "node_dim"), ({"events": 0}, "events"),
        ({"model": "gat", "node_dim": 0}, "node_dim"),
    ],
)  # fmt: skip
def test_fields_out_of_range_are_named(fields, name) -> None:
    with pytest.raises(InvalidInputError, match=name):
        tiny_task(**fields).check()


def test_unknown_words_are_named() -> None:
    with pytest.raises(UnknownKeyError, match="tgnn"):
        msgspec.structs.replace(tiny_task(), model="tgnn").check()
    with pytest.raises(UnknownKeyError, match="newest"):
        tiny_task(sampling="newest").check()


# --- batches --------------------------------------------------------------------------------------


@given(st.integers(0, 60), st.sampled_from([1, 2, 5]), st.integers(0, 6))
def test_batches_cut_events_in_order_by_chunks(count, chunks, epoch) -> None:
    task = tiny_task(chunks=chunks)
    events = torch.arange(100, 100 + count)
    parts = batches(task, events, events.double(), epoch)
    assert torch.equal(torch.cat([*parts, events[:0]]), events)
    assert all(0 < part.numel() <= 10 for part in parts)
    if parts:
        assert parts[0].numel() % (10 // chunks) == 0 or len(parts) == 1
        assert all(part.numel() == 10 for part in parts[1:-1])


def test_borders_of_batches_move_from_epoch_to_epoch() -> None:
    firsts = {
        batches(tiny_task(chunks=5), torch.arange(50), torch.arange(50.0), e)[0].numel()
        for e in range(40)
    }
    assert firsts == {2, 4, 6, 8, 10}
    assert {
        batches(tiny_task(), torch.arange(50), torch.arange(50.0), e)[0].numel() for e in range(9)
    } == {10}


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


def test_batches_without_equal_times_are_those_of_equal_size() -> None:
    events = torch.arange(57)
    for epoch in range(5):
        strict, plain = (
            batches(tiny_task(chunks=5, strict_time=on), events, events.double(), epoch)
            for on in (True, False)
        )
        assert [part.tolist() for part in strict] == [part.tolist() for part in plain]
    ties = torch.zeros(57)
    assert len(batches(tiny_task("tgat"), events, ties)) == 6  # nothing is remembered


def test_draws_tell_batches_epochs_and_scoring_apart() -> None:
    task = tiny_task()
    train = {batch_draw(task, first, epoch) for first in range(50) for epoch in range(4)}
    assert len(train) == 200
    assert max(train) < 2**31
    scored = {batch_draw(task, first, 0, scored=True) for first in range(50)}
    assert min(scored) >= 2**31
    assert max(scored) < 2**32


# --- the memory -----------------------------------------------------------------------------------


def test_memory_reads_what_was_written_and_goes_back() -> None:
    memory = VertexMemory(5, 2, 3, begin=7.0)
    blank = memory.read(torch.tensor([4, 4]))
    assert blank.updated.tolist() == [7.0, 7.0]
    assert not blank.mail_time.isfinite().any()
    before = memory.state()
    ids = torch.tensor([3, 1])
    rows = MemoryRows(torch.rand(2, 2), torch.rand(2).double(), torch.rand(2, 3),
                      torch.rand(2).double())  # fmt: skip
    memory.write(ids, torch.tensor([0, 1]), rows)
    found = memory.read(torch.tensor([1, 3, 0]))
    assert torch.equal(found.memory[:2], rows.memory.flip(0))
    assert torch.equal(found.mail_time[:2], rows.mail_time.flip(0))
    assert not found.memory[2].any()
    memory.restore(before)
    assert not memory.read(ids).memory.any()


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


def test_batches_of_one_time_value_leave_what_a_single_one_does() -> None:
    found = []
    for batch, ranges in ((4, (0, 60)), (20, (0, 60)), (4, (0, 24, 60))):
        task = tiny_task(batch=batch)
        data = tiny_stream(task)
        data.events.t[:] = 100 + torch.arange(60).div(20, rounding_mode="floor")
        trainer, loss = trainer_of(task, data), 0.0
        for first, last in pairwise(ranges):  # one ends inside of the second value
            held = trainer.memory_state()
            once = trainer.evaluate_range(first, last)
            trainer.restore_memory(held)
            assert trainer.evaluate_range(first, last, remember=True) == once
            loss += once.loss * once.n
        found.append((loss, trainer.memory_state().rows))
    for loss, rows in found[1:]:
        assert loss == pytest.approx(found[0][0], rel=1e-12)
        for name in MemoryRows.__slots__:
            torch.testing.assert_close(getattr(rows, name), getattr(found[0][1], name))


# --- the trainer ----------------------------------------------------------------------------------


@pytest.mark.parametrize("model", STREAM_MODELS)
def test_training_is_repeatable_and_learns(model) -> None:
    task = tiny_task(model)
    runs = []
    for _ in range(2):
        trainer = trainer_of(task)
        losses = []
        for epoch in range(4):
            trainer.reset_memory()
            losses.append(trainer.train(0, 60, epoch=epoch))
        runs.append(losses)
    assert runs[0] == runs[1]
    assert runs[0][-1] < runs[0][0]
    single = trainer_of(task, dtype=torch.float32)
    assert single.train(0, 60) == pytest.approx(runs[0][0], rel=1e-4)


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


@pytest.mark.parametrize("model", ["tgn", "tgat", "dysat"])
def test_gradients_are_those_of_the_loss(model) -> None:
    task = tiny_task(model, dropout=0.0)
    trainer = trainer_of(task)
    trainer.train(0, 30)
    gradients = trainer.gradients(3)
    checked = 0
    for name, leaf in trainer.model.named_parameters():
        if gradients[name].abs().max() < 1e-6:
            continue
        place = int(gradients[name].abs().argmax())
        flat = leaf.data.view(-1)
        kept, step = float(flat[place]), 1e-6
        ends = []
        for sign in (1, -1):
            flat[place] = kept + sign * step
            ends.append(trainer.loss(3))
        flat[place] = kept
        slope = (ends[0] - ends[1]) / (2 * step)
        assert slope == pytest.approx(float(gradients[name].view(-1)[place]), rel=1e-3, abs=1e-7)
        checked += 1
    assert checked > 8


@pytest.mark.parametrize("model", STREAM_MODELS)
def test_nothing_is_seen_of_an_event_or_of_later_ones(model) -> None:
    task = tiny_task(model)
    data = tiny_stream(task)
    whole = trainer_of(task, data)
    part = trainer_of(task, data, prepared=False)
    first = int((data.events.t < data.events.t[40]).sum())  # ties with event 40 are not there
    part.insert(first)
    assert part.train(0, 40) == whole.train(0, 40)


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


def test_edges_of_what_can_be_asked() -> None:
    trainer = trainer_of(tiny_task(strict_time=False), prepared=False)
    assert trainer.train(5, 5) == 0
    found = trainer.evaluate_range(5, 5)
    assert found.n == 0
    assert found.ap != found.ap
    for first, last in ((-1, 3), (4, 3), (0, 61)):
        with pytest.raises(InvalidInputError, match="events"):
            trainer.train(first, last)
        with pytest.raises(InvalidInputError, match="events"):
            trainer.evaluate_range(first, last)
    with pytest.raises(InvalidInputError, match="frame is 6"):
        trainer.step(6)
    trainer.insert(20)
    trainer.insert(10)
    assert trainer.inserted == 20
    assert trainer.num_frames == 6


@pytest.mark.parametrize(
    ("model", "fields"),
    [("tgn", {"node_dim": 0, "edge_dim": 0}), ("tgat", {"node_dim": 0}),
     ("dysat", {"edge_dim": 0}), ("tgn", {"fanouts": (2, 2)}), ("tgat", {"heads": 4}),
     ("tgn", {"undirected": False}), ("tgat", {"closed": True, "window": 9.0})],
)  # fmt: skip
def test_other_settings_train(model, fields) -> None:
    trainer = trainer_of(tiny_task(model, **fields))
    assert trainer.train(0, 60) > 0
    assert trainer.evaluate_range(40, 60).n == 20


def test_one_trainer_goes_on_from_another() -> None:
    task = tiny_task()
    data = tiny_stream(task)
    first, second = trainer_of(task, data), trainer_of(task, data)
    first.train(0, 30)
    second.copy_from(first)
    first.close()
    assert first.train(30, 60) == second.train(30, 60)


def test_phases_and_counters_are_kept() -> None:
    task = tiny_task("tgn", chunks=2)
    data = tiny_stream(task)
    meter = Meter(timing=True)
    trainer = StreamTrainer(task, data, PlainStream(task, data), meter=meter)
    trainer.prepare()
    trainer.train(0, 60)
    assert {"insert", "sample", "fetch", "compute", "memory", "update"} <= set(meter.phases())
    assert meter.counters["roots"] == 180
    assert meter.counters["sampled_edges"] > 0
    assert meter.counters["edge_rows"] == meter.counters["sampled_edges"] + 60
    assert meter.counters["node_rows"] == meter.counters["memory_rows"]
