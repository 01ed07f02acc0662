"""PiPAD's compiled steps: what they ask of Python, what they count, and where there are none."""

from __future__ import annotations

from contextlib import closing

import pytest
import torch
from tiny_data import serve, tiny_sequence, tiny_workload
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from dgbench.systems.pipad import PipadSystem
from dgbench.systems.pipad.experiments.tuning import PAPERS, frame_bytes

MODELS = ("tgcn_model", "evolvegcn", "mpnn_lstm")
MOST_OPERATORS = 4
"""Operators of torch in a steady step: views of what is kept, and of targets."""
MOST_CALLS = 16
"""Calls of torch's Python interface in a steady step."""


class Operators(TorchDispatchMode):
    """Counts operators that torch dispatches."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


class Calls(TorchFunctionMode):
    """Counts calls from Python, and autograd nodes that they make."""

    def __init__(self):
        super().__init__()
        self.names, self.nodes = [], 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", str(func))
        if name != "__get__":  # shapes and dtypes
            self.names.append(name)
        self.nodes += isinstance(found, torch.Tensor) and found.grad_fn is not None
        return found


def work_of(model, **options):
    return tiny_workload(
        model=model, loss_on="last" if model == "mpnn_lstm" else "every", **options
    )


def opened(model, switches=None, **options):
    trainer = PipadSystem().open(work_of(model, **options), switches=switches)
    trainer.prepare()
    return trainer


@pytest.fixture(autouse=True)
def graph(monkeypatch):
    serve(monkeypatch, tiny_sequence(nodes=15, edges=50, snapshots=13))


@pytest.mark.parametrize("model", MODELS)
def test_a_steady_step_leaves_python_at_once(model):
    trainer = opened(model)
    assert trainer.compiled is not None
    for frame in range(trainer.num_frames):
        trainer.step(frame)
    with Operators() as operators, Calls() as calls:
        trainer.step(0)
    assert len(operators.names) <= MOST_OPERATORS, operators.names
    assert len(calls.names) <= MOST_CALLS, calls.names
    assert calls.nodes == 0  # allowed are 2


@pytest.mark.parametrize("switches", [{}, {"reuse": False}, {"parallel_aggregation": False}])
@pytest.mark.parametrize("model", MODELS)
def test_counts_and_losses_are_those_of_single_operators(model, switches):
    found = []
    for compiled in (True, False):
        trainer = PipadSystem().open(
            work_of(model, lr=1e-2),
            # The tuner times the kernels that run, which are not the same here.
            switches={"tuner": False, **switches, "compiled_step": compiled},
        )
        trainer.prepare()
        trainer.meter.reset()
        losses = [trainer.step(i % trainer.num_frames) for i in range(3 * trainer.num_frames)]
        found.append((losses, dict(trainer.meter.counters), trainer.state()))
    (losses, counts, state), (plain, plain_counts, plain_state) = found
    assert counts == plain_counts
    assert losses == pytest.approx(plain, rel=1e-4)
    for name, tensor in plain_state.items():
        assert torch.allclose(state[name], tensor, rtol=1e-3, atol=1e-4), name


@pytest.mark.parametrize("model", MODELS)
def test_asking_for_a_result_trains_nothing(model):
    trainer = opened(model)
    before = trainer.state()
    result = trainer.result(1)
    assert trainer.loss(1) == pytest.approx(result.loss, rel=1e-5)
    assert torch.allclose(trainer.evaluate(1), result.output, rtol=1e-4, atol=1e-5)
    gradients = trainer.gradients(1)
    assert list(gradients) == list(dict(trainer.model.named_parameters()))
    for name, gradient in result.gradients.items():
        assert torch.equal(gradients[name], gradient)
    after = trainer.state()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    assert trainer.step(1) == result.loss
    assert any(not torch.equal(trainer.state()[name], before[name]) for name in before)


@pytest.mark.parametrize(
    ("model", "options", "switches"),
    [
        ("tgcn_model", {"task": "link"}, {}), ("evolvegcn", {"cell": "lstm"}, {}),
        ("mpnn_lstm", {"loss_on": "every"}, {}), ("tgcn_model", {}, {"weight_reuse": False}),
        ("evolvegcn", {}, {"slice_coalescing": True}), ("mpnn_lstm", {}, {"arena": True}),
    ],
)  # fmt: skip
def test_a_row_says_why_its_steps_are_not_compiled(model, options, switches):
    with closing(
        PipadSystem().open(tiny_workload(model=model, **options), switches=switches)
    ) as it:
        assert it.compiled is None
        reason = next(iter(switches or {options.get("task") or options.get("cell") or "every": 0}))
        assert any(reason in note and "compiled" in note for note in it.notes)
        it.prepare()
        it.step(0)


def test_a_frames_memory_is_asked_of_steps_that_autograd_keeps():
    """The tuner's formula has the activations of a frame; a compiled step keeps none."""
    papers, compiled = (opened("evolvegcn", switches=one) for one in (PAPERS, None))
    assert compiled.compiled is not None
    assert frame_bytes(papers) > 0 == frame_bytes(compiled)
    papers.close(), compiled.close()
