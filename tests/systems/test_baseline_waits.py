"""Sequential baselines on a device: no step waits for it, and the losses are those of the CPU."""

from __future__ import annotations

import msgspec
import pytest
from interactions_tiny import tiny_data, tiny_task
from pretended_cuda import pretended_cuda

from dgbench.systems.base import get_system
from dgbench.systems.base.interaction_trainer import InteractionTrainer
from dgbench.systems.tgcn import races

WAITS = ("waits", "to_host", "blocking", "sized", "event_waits")
SWITCHES = {
    "dygnn": [
        {"padding": padding, "propagation": propagation}
        for padding in (True, False)
        for propagation in (True, False)
    ],
    "jodie": [{"padding": True}, {"padding": False}],
}
CASES = [(name, switches) for name, every in SWITCHES.items() for switches in every]

pytestmark = pytest.mark.filterwarnings("ignore:PyTorch was compiled without cuDNN")


def waited(seen) -> dict[str, int]:
    return {name: seen.noted[name] for name in WAITS if seen.noted[name]}


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("kind", ["link", "classify"])
@pytest.mark.parametrize(("name", "switches"), CASES, ids=str)
def test_no_t_batch_waits_for_the_device(monkeypatch, name, switches, kind, strict):
    task = tiny_task(task=kind, strict_time=strict)
    data = tiny_data(task, nodes=20)
    wanted = trained(name, task, data, switches)
    with pretended_cuda(monkeypatch) as seen:
        trainer = get_system(name).open(task, data=data, switches=switches, device="cuda")
        found = []
        for _ in range(2):
            trainer.reset_state()
            for group in trainer.groups(0, data.train_end):
                seen.noted.clear()
                loss = trainer.group_loss(group)
                assert waited(seen) == {}
                assert seen.noted["to_device"] <= 1 + len(group) * strict  # held events, at most
                found.append(float(loss))
        first, last = data.train_end, len(data.events)
        found.append(trainer.evaluate_range(first, last).loss)
    assert found == pytest.approx(wanted, rel=2e-4)


def trained(name, task, data, switches) -> list[float]:
    trainer = get_system(name).open(task, data=data, switches=switches)
    found = []
    for _ in range(2):
        trainer.reset_state()
        found += [trainer.train_group(group) for group in trainer.groups(0, data.train_end)]
    return [*found, trainer.evaluate_range(data.train_end, len(data.events)).loss]


@pytest.mark.parametrize("model", ["dygnn", "jodie"])
def test_a_relaxed_rival_waits_as_often_as_tgcn_does(monkeypatch, model):
    """Once an interval, for the numbers of rows that are computed."""
    task = tiny_task(model=model, intervals=4)
    data = tiny_data(task, nodes=20)
    with pretended_cuda(monkeypatch) as seen:
        trainer = InteractionTrainer(task, data, device="cuda", order="intervals")
        trainer.reset_state()
        for group in trainer.groups(0, data.train_end):
            seen.noted.clear()
            trainer.group_loss(group)
            assert waited(seen) == {"to_host": 1}
            assert seen.noted["to_device"] == 1


def test_a_step_that_is_enqueued_is_read_later(monkeypatch):
    task = tiny_task()
    data = tiny_data(task, nodes=20)
    plain = get_system("dygnn").open(task, data=data)
    wanted = [plain.step(k) for k in range(plain.num_frames)]
    with pretended_cuda(monkeypatch) as seen:
        trainer = get_system("dygnn").open(task, data=data, device="cuda")
        first = trainer.enqueue(0)
        seen.noted.clear()
        losses = [first, *(trainer.enqueue(k) for k in range(1, trainer.num_frames))]
        assert waited(seen) == {}
        assert [loss.value() for loss in losses] == pytest.approx(wanted, rel=2e-4)


@pytest.mark.parametrize("name", [races.DYGNN, races.JODIE])
def test_a_turn_on_a_device_is_as_long_as_an_interval(monkeypatch, name):
    """Its end waits for the device, as an epoch of T-GCN does, not every optimiser step."""
    task = tiny_task(batch=10)
    data = tiny_data(task, events=200, nodes=20)
    monkeypatch.setattr(races, "INTERVAL", 45)
    steps = races.open_runner(name, task, data, "cpu")
    sizes = [sum(map(len, group)) for group in steps.trainer.groups(0, data.train_end)]
    assert steps.turn() == sizes[0]
    with pretended_cuda(monkeypatch) as seen:
        runner = races.open_runner(name, msgspec.structs.replace(task), data, "cuda")
        runner.turn()
        seen.noted.clear()
        edges = runner.turn()
        assert waited(seen) == {}
    assert edges >= 45
    assert edges - max(sizes) < 45
