"""PiPAD's compiled, captured and recorded steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext

import pytest
import torch
from tiny_data import serve, tiny_sequence, tiny_workload
from torch import Tensor

from dgbench.runtime.meter import Meter
from dgbench.runtime.transfer.link import TransferLink
from dgbench.runtime.transfer.recorded import RecordedTicket
from dgbench.runtime.transfer.slots import Slot
from dgbench.systems.pipad import PipadSystem
from dgbench.systems.pipad.recorded import RecordedSteps

MODELS = ("tgcn_model", "evolvegcn", "mpnn_lstm")


SWITCHES = ({"reuse": False}, {"device_buffer": False}, {"resident": True}, {"overlap": False})


class CopyingLink(TransferLink):
    """Copies at once into memory of its own, or into a given place."""

    copies = True

    def send(self, tensors: Sequence[Tensor]) -> RecordedTicket:
        layout = self._layout(tensors)
        return self._put(layout, torch.empty(max(layout.span, 1), dtype=torch.uint8))

    def send_into(self, buffer: Tensor, tensors: Sequence[Tensor]) -> RecordedTicket:
        return self._put(self._layout(tensors), buffer)

    def _put(self, layout, buffer: Tensor) -> RecordedTicket:
        for source, offset, nbytes in layout.runs:
            buffer[offset : offset + nbytes].copy_(source)
        return RecordedTicket(layout.nbytes, Slot(buffer).views(layout), None)


class RepeatingRecorder:
    """A recording does the work once and takes back what it trained; a launch does it again."""

    def __init__(self, trainer, meter: Meter) -> None:
        self._trainer, self._meter = trainer, meter
        self.launches = 0

    def aside(self):
        return nullcontext()

    def record(self, work: Callable[[CopyingLink], Tensor]):
        states = self._trainer.optimiser().state.values()
        kept = [*self._trainer.trained().values()]
        kept += [value for state in states for value in state.values()]
        before = [tensor.detach().clone() for tensor in kept]
        loss = work(CopyingLink(self._meter)).clone()
        with torch.no_grad():
            for tensor, value in zip(kept, before, strict=True):
                tensor.copy_(value)

        def launch() -> None:
            self.launches += 1
            counters = self._meter.counters.copy()  # a graph counts nothing
            loss.copy_(work(CopyingLink(self._meter)))
            self._meter.counters.clear()
            self._meter.counters.update(counters)

        return launch, loss


def opened_of_recorded(task, switches: dict[str, bool]):
    """A trainer whose inputs are copied, past its preparation."""
    chosen = {"arena": True, "compiled_step": False, **switches}
    trainer = PipadSystem(s_per=3).open(task, switches=chosen, meter=Meter())
    trainer.prepare()
    return trainer


def recorded(trainer) -> tuple[RecordedSteps, RepeatingRecorder]:
    recorder = RepeatingRecorder(trainer, trainer.meter)
    steps = RecordedSteps(
        trainer.engine, trainer._loss, list(trainer.trained().values()), trainer.optimiser(),
        trainer.controller.frames, trainer.meter, recorder,
    )  # fmt: skip
    return steps, recorder


def by_one(trainer, steps: RecordedSteps, frame: int) -> float:
    """A step as `PipadTrainer.enqueue` makes it."""
    found = steps.run(frame)
    return trainer.step(frame) if found is None else found.value()


@pytest.mark.parametrize(
    ("model", "switches", "snapshots"),  # of 1, 4 and 5 frames
    [*((model, {}, 9) for model in MODELS), ("tgcn_model", {}, 6), ("mpnn_lstm", {}, 10),
     *((MODELS[n % 3], switches, 9) for n, switches in enumerate(SWITCHES, 1))],
)  # fmt: skip
def test_recorded_steps_are_the_steps(monkeypatch, model, switches, snapshots) -> None:
    serve(monkeypatch, tiny_sequence(nodes=30, edges=120, snapshots=snapshots))
    task = tiny_workload(model=model, frame=4 if snapshots > 6 else 5, loss_on="every")
    plain, trainer = opened_of_recorded(task, switches), opened_of_recorded(task, switches)
    steps, recorder = recorded(trainer)
    assert trainer.meter.counters == plain.meter.counters
    count = trainer.num_frames
    for i in range(4 * count):
        if i == 2 * count:  # what looks at the model in between may leave other snapshots behind
            assert torch.equal(trainer.result(0).output, plain.result(0).output)
        assert by_one(trainer, steps, i % count) == pytest.approx(plain.step(i % count), rel=1e-6)
    assert recorder.launches >= 2 * count
    for name, value in plain.state().items():
        torch.testing.assert_close(trainer.state()[name], value, rtol=1e-5, atol=1e-7)
    assert not steps.note()
    trainer.close(), plain.close()
