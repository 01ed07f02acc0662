"""GNNFlow's batches as one CUDA graph: what a device does, and a stand-in that repeats the work."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial

import msgspec
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from dgbench.kernels_cuda.batch_rows import device as batch_rows
from dgbench.kernels_cuda.temporal_store import device as device_store
from dgbench.kernels_cuda.temporal_store import recorded as recorded_batch
from dgbench.kernels_cuda.temporal_store import resident
from dgbench.models.ctdg import attend
from dgbench.systems.base.stream import StreamData, StreamTrainer, StreamWorkload, load_stream
from dgbench.systems.gnnflow import recorded, system
from dgbench.systems.gnnflow.access import AccessSettings, StoreAccess
from dgbench.systems.gnnflow.device_access import RESIDENT, DeviceAccess
from dgbench.systems.gnnflow.experiments import round_race
from dgbench.systems.gnnflow.experiments.settings import BY_NAME
from dgbench.systems.gnnflow.rounds import rounds_by_count

BARE = {"node_cache": False, "edge_cache": False}
ON = {**BARE, "recorded_steps": True}
SETTINGS = AccessSettings(placement=RESIDENT)


def task(model: str, **how) -> StreamWorkload:
    given = {
        "dataset": "reddit", "source": "twin", "scale": 1 / 64, "model": model, "node_dim": 6,
        "edge_dim": 5, "fanouts": (3,) if model == "tgn" else (3, 2), "hidden_dim": 8,
        "time_dim": 4, "memory_dim": 6, "batch": 60, "events": 360, "lr": 1e-3,
    }  # fmt: skip
    return StreamWorkload(**{**given, **how})


def loaded(workload: StreamWorkload) -> StreamData:
    """The stream in days: of ages in seconds a rounding of a weight turns the phase."""
    data = load_stream(workload)
    data.events.t.div_(86_400.0)
    return data


class BatchRecorder:
    """A recording does the work once and takes back what it trained; a launch does it again."""

    def __init__(self, trainer: StreamTrainer) -> None:
        self._trainer, self.launches, self.recordings = trainer, 0, 0

    def aside(self):
        return nullcontext()

    def record(self, work: Callable[[None], Tensor]):
        self.recordings += 1
        states = self._trainer.optimiser.state.values()
        kept = [*self._trainer.model.parameters()]
        kept += [value for state in states for value in state.values()]
        before = [tensor.detach().clone() for tensor in kept]
        loss = work(None).clone()
        with torch.no_grad():
            for tensor, value in zip(kept, before, strict=True):
                tensor.copy_(value)

        def launch() -> None:
            self.launches += 1
            loss.copy_(work(None))

        return launch, loss


@pytest.fixture
def there(serve, monkeypatch) -> str:
    """The device that is emulated or there."""
    device = serve(resident, recorded_batch, batch_rows, device_store)
    if device == "cpu":
        monkeypatch.setattr(system, "StoreAccess", partial(DeviceAccess, sampler="cpu"))
    return device


@pytest.fixture
def open_trainer(there, monkeypatch):
    """A trainer whose steps are recorded; `recorder` counts them where they are emulated."""

    def opened(workload: StreamWorkload, switches=ON, settings=SETTINGS, **options):
        data = loaded(workload)
        trainer = system.GnnflowSystem().open(
            workload, device=there, switches=switches, data=data, settings=settings,
            dtype=torch.float64, **options,
        )  # fmt: skip
        trainer.recorder = BatchRecorder(trainer)
        if there == "cpu":
            monkeypatch.setattr(recorded, "GraphRecorder", lambda *_: trainer.recorder)
        return trainer

    return opened


def plain(workload: StreamWorkload, device: str = "cpu") -> StreamTrainer:
    """A trainer that starts every operator, over the store of the CPU."""
    data = loaded(workload)
    switches = system.GnnflowSystem().switches(BARE)
    return StreamTrainer(
        workload, data, StoreAccess(workload, data, switches), device=device, dtype=torch.float64
    )


def train_both(one: StreamTrainer, other: StreamTrainer, first: int, end: int, epoch=0) -> None:
    """Train both on the same events, with the same loss."""
    mine, right = (trainer.train(first, end, epoch=epoch) for trainer in (one, other))
    assert mine == pytest.approx(right, rel=1e-9)


def assert_same(one: StreamTrainer, other: StreamTrainer) -> None:
    for name, value in other.state().items():
        torch.testing.assert_close(one.state()[name], value, rtol=1e-7, atol=1e-9, msg=name)
    if other.memory is not None:
        for mine, theirs in zip(one.memory.columns, other.memory.columns, strict=True):
            torch.testing.assert_close(mine.cpu(), theirs.cpu(), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(
    ("model", "how"),
    [("tgn", {"node_dim": 0, "edge_dim": 0}), ("graphsage", {}), ("gat", {"edge_dim": 0}),
     ("tgn", {"batch": 7, "events": 90}), ("tgat", {"sampling": "uniform", "window": 0.5}),
     ("tgat", {"sampling": "uniform", "closed": True, "prop_time": True, "fanouts": (2, 3)})],
    ids=str,
)  # fmt: skip
def test_recorded_steps_are_the_steps(open_trainer, there, model, how) -> None:
    workload = task(model, **how)
    trainer, other = open_trainer(workload), plain(workload, there)
    last = len(trainer.data.events)
    for first, end in ((0, last // 2), (last // 2, last)):
        for one in (trainer, other):
            one.insert(end)
        before = trainer.memory_state(), other.memory_state()
        for epoch in range(2):
            trainer.restore_memory(before[0])
            other.restore_memory(before[1])
            train_both(trainer, other, first, end, epoch)
        scores = trainer.evaluate_range(first, end), other.evaluate_range(first, end)
        assert scores[0].loss == pytest.approx(scores[1].loss, rel=1e-9)
    assert_same(trainer, other)
    if there == "cpu":
        assert trainer.recorder.launches >= 2 * (last // workload.batch)
        for name in ("roots", "sampled_edges", "memory_rows", "edge_rows"):
            assert trainer.meter.counters[name] == other.meter.counters[name], name


def test_batches_that_do_not_fit_are_trained_on_by_the_trainer(open_trainer, there) -> None:
    # A third of the events has one time: batches of it are long, cut, and hold their writes.
    workload = task("tgn", batch=16, events=200)
    trainer, other = open_trainer(workload), plain(workload, there)
    for one in (trainer, other):
        one.data.events.t[60:130] = one.data.events.t[60]
        one.insert(200)
    for epoch in range(2):
        train_both(trainer, other, 0, 200, epoch)
    assert_same(trainer, other)
    if there == "cpu":
        assert 0 < trainer.recorder.launches < 2 * 10


def test_a_store_that_has_grown_is_recorded_again(open_trainer, there) -> None:
    trainer, other = open_trainer(task("tgn")), plain(task("tgn"), there)
    before = None
    for first, last in ((0, 60), (60, 120), (120, 360)):
        for one in (trainer, other):
            one.insert(last)
        train_both(trainer, other, first, last)
        assert trainer._recorded is not before
        before = trainer._recorded
    kept = trainer.training_state()
    trainer.load_training_state(kept)  # Adam's state lies elsewhere now
    other.load_training_state(other.training_state())
    train_both(trainer, other, 0, 360, 1)
    assert trainer._recorded is not before
    trainer.copy_from(other)
    other.copy_from(trainer)
    train_both(trainer, other, 0, 360, 2)
    trainer.close(), other.close()


class NoReads(TorchDispatchMode):
    """Fails where the host has to know a result of an operator of torch, or its size."""

    names = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "equal", "is_nonzero")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        assert not any(word in name for word in self.names), name
        if name == "repeat_interleave":
            assert (kwargs or {}).get("output_size") is not None
        if name == "index":
            assert all(i is None or i.dtype != torch.bool for i in args[1])
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("model", ["tgn", "tgat"])
def test_a_launch_waits_for_nothing(open_trainer, there, log, model) -> None:
    trainer = open_trainer(task(model))
    trainer.insert(360)
    trainer.train(0, 120)
    gc.collect()  # stores of other tests are freed
    log.clear()
    # Adam on a CPU reads its step; on a device it is capturable.
    work = trainer._recorded._gradients
    with NoReads():
        work()
    names = {call.name for call in log.calls()}
    assert names == {"launch"}


@pytest.mark.parametrize(
    ("switches", "settings", "how", "reason"),
    [
        (ON, AccessSettings(), {}, "placement"),
        ({"recorded_steps": True}, SETTINGS, {}, "caches"),
        (ON, SETTINGS, {"dropout": 0.1}, "dropout"),
        (ON, SETTINGS, {"model": "dysat", "window": 1.0, "snapshots": 2}, "snapshots"),
    ],
)
def test_what_cannot_be_recorded_is_trained_on_and_says_why(
    open_trainer, switches, settings, how, reason
) -> None:
    trainer = open_trainer(task(**{"model": "tgn", **how}), switches, settings)
    trainer.insert(120)
    assert trainer.train(0, 120) > 0
    assert reason in trainer.notes[-1]
    assert trainer._recorded is None


def test_on_a_cpu_nothing_is_recorded() -> None:
    workload = msgspec.structs.replace(task("tgn"), events=120)
    trainer = system.GnnflowSystem().open(workload, switches=ON)
    trainer.insert(120)
    assert trainer.train(0, 120) > 0
    assert "CUDA device" in trainer.notes[-1]


def test_the_races_contender_trains_as_gnnflow_does(there, monkeypatch) -> None:
    """The race opens it by its name, and allows for the order of its sums."""
    workload = task("tgn")
    data = loaded(workload)
    graph = BY_NAME["reddit"]
    names = (round_race.TGL, round_race.GNNFLOW, round_race.RECORDED)
    made, trainers = [], []

    def recorder(device, meter):
        mine = next(one for one in trainers if one.meter is meter)
        made.append(BatchRecorder(mine))
        return made[-1]

    opened = round_race.open_contender

    def remember(*arguments):
        trainers.append(opened(*arguments))
        return trainers[-1]

    if there == "cpu":
        monkeypatch.setattr(recorded, "GraphRecorder", recorder)
        monkeypatch.setattr(attend, "serves", lambda *_: False)  # as on a device
    monkeypatch.setattr(round_race, "open_contender", remember)
    monkeypatch.setattr(round_race, "rounds_of", lambda graph, data, count: rounds_by_count(360, 3))
    told = round_race.race(names, workload, data, graph, round_race.Length(2, 2, 0.0), device=there)
    assert all(check.passed for check in told.checks), told.checks
    shown = [one.dims for one in told.observations if one.metric == "speedup"]
    pairs = {(dims["baseline"], dims["setting"]) for dims in shown}
    assert (round_race.GNNFLOW, round_race.RECORDED) in pairs
    assert there == "cuda" or made[0].launches
