"""Sequential baselines on a device: no step waits for it, and the losses are those of the CPU."""

from __future__ import annotations

import pytest
from interactions_tiny import tiny_data, tiny_task
from pretended_cuda import pretended_cuda

from dgbench.systems.base import get_system

WAITS = ("waits", "to_host", "blocking", "sized", "event_waits")
SWITCHES = {
    "dygnn": [{"padding": True, "propagation": True}, {"padding": False, "propagation": False}],
    "jodie": [{"padding": True}, {"padding": False}],
}
CASES = [(name, switches) for name, every in SWITCHES.items() for switches in every]

pytestmark = pytest.mark.filterwarnings("ignore:PyTorch was compiled without cuDNN")


def waited(seen) -> dict[str, int]:
    return {name: seen.noted[name] for name in WAITS if seen.noted[name]}


@pytest.mark.parametrize(("kind", "strict"), [("link", True), ("classify", False)])
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
