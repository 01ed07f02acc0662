"""Steps that do not wait for the device, and a timed loop that is one step ahead of it."""

from __future__ import annotations

import pytest
import torch
from interactions_tiny import tiny_data, tiny_task
from pretended_cuda import pretended_cuda
from tiny_data import serve, tiny_sequence, tiny_workload

from dgbench.lab.table import number
from dgbench.runtime.readback import Readback
from dgbench.systems.base import RunContext, get_system, race

STEPS = 5
pytestmark = pytest.mark.filterwarnings("ignore:PyTorch was compiled without cuDNN")


@pytest.mark.parametrize(
    ("model", "loss_on"), [("tgcn_model", "last"), ("evolvegcn", "every"), ("mpnn_lstm", "last")]
)
def test_a_steady_step_does_not_wait_for_the_device(monkeypatch, model, loss_on):
    serve(monkeypatch, tiny_sequence(nodes=15, edges=50, snapshots=9))
    work = tiny_workload(model=model, loss_on=loss_on)
    system = get_system("reference")
    plain = system.open(work)
    wanted = [plain.step(i % plain.num_frames) for i in range(STEPS + 2)]
    with pretended_cuda(monkeypatch) as seen:
        trainer = system.open(work, device="cuda")
        found = [trainer.step(0)]
        assert seen.noted["waits"] > 0  # `step` does
        found.append(trainer.enqueue(1 % trainer.num_frames).value())
        seen.noted.clear()
        losses = [trainer.enqueue(i % trainer.num_frames) for i in range(2, STEPS + 2)]
        assert seen.noted["waits"] == seen.noted["to_host"] == 0
        assert seen.noted["read_back"] == STEPS
        found += [loss.value() for loss in losses]
        assert seen.noted["waits"] == STEPS
        trainer.close()
    assert found == pytest.approx(wanted, rel=1e-5)


def test_a_timed_loop_is_one_step_ahead(monkeypatch):
    """It waits for a step only when the next one was given to the device."""
    serve(monkeypatch, tiny_sequence(nodes=15, edges=50, snapshots=9))
    begun, waited, ahead, timed = [], [], [], []

    class Noted(Readback):
        def __init__(self, number: float) -> None:
            super().__init__(number)
            self.number = len(begun)
            begun.append(self)

        def wait(self) -> None:
            if self.number not in waited:
                waited.append(self.number)
                ahead.append(len(begun) - 1 - self.number)
            super().wait()

    trainer = type(get_system("reference").open(tiny_workload()))
    enqueue = trainer.enqueue

    def noted(self, frame: int) -> Readback:
        loss = enqueue(self, frame)
        if not timed and next(iter(self.state().values())).dtype == torch.float32:
            timed.append(self)  # what is compared with it is of float64, or comes later
        return Noted(loss.value()) if self in timed else loss

    monkeypatch.setattr(trainer, "enqueue", noted)
    # A later process: the first one would take a step more, to compare it.
    context = RunContext("cpu", "smoke", 1, budget_s=0.05, round=2)
    measured = race.timed("reference", tiny_workload(), context)
    # Steps follow where the timed ones were too few to be audited.
    assert 2 < len(measured.steady) + measured.warmup <= len(begun)
    assert ahead[:-1] == [1] * (len(begun) - 1)
    assert waited == list(range(len(begun)))
    assert number(measured, "loss") == begun[0].value()


WAITS = ("waits", "to_host", "blocking", "sized", "event_waits")
CASES = [
    ("dygnn", {"padding": True, "propagation": True}, "link", True),
    ("dygnn", {"padding": False, "propagation": False}, "classify", False),
    ("jodie", {"padding": True}, "classify", True),
]


def waited(seen) -> dict[str, int]:
    return {name: seen.noted[name] for name in WAITS if seen.noted[name]}


@pytest.mark.parametrize(("name", "switches", "kind", "strict"), CASES, ids=str)
def test_no_t_batch_waits_for_the_device(monkeypatch, name, switches, kind, strict):
    task = tiny_task(task=kind, strict_time=strict)
    data = tiny_data(task, events=25, nodes=20)
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
