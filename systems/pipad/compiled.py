"""PiPAD's training step as one compiled call on a CPU: forward, loss, backward and Adam.

A switch of ours (`compiled_step`), not of the paper: it takes away what the framework costs around
the operators. The techniques stay what they are: aggregations of features that do not train come
from the engine's store, all others run over its partitions, and everything is counted as before.
Where a workload has no compiled step, `reason_against` says why and the row carries it. On a device
`recorded.RecordedSteps` takes its place.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Final

from torch import Tensor

from dgbench.kernels_cuda.steps import (
    Adam,
    FlatParameters,
    evolvegcn_step,
    mpnn_lstm_step,
    tgcn_model_step,
)
from dgbench.models import EvolveGcnO, FrameModel, GcnGru, MpnnLstm
from dgbench.models.dtdg.mpnn_lstm import FrameNorm
from dgbench.models.heads import NodeHead
from dgbench.systems.base import Workload
from dgbench.systems.base.moments import AdamMoments
from dgbench.systems.base.training import FrameTask
from dgbench.systems.pipad.engine import Engine
from dgbench.systems.pipad.ladders import BUILT_IN


class CompiledStep(ABC):
    """Whole training steps of one model.

    Args:
        model: its parameters become views of one flat tensor.
        engine: what aggregates, and counts.
        task: frames and targets.
        rate: learning rate.
    """

    def __init__(self, model: FrameModel, engine: Engine, task: FrameTask, rate: float) -> None:
        self.model = model
        self.engine = engine
        self.task = task
        self.adam = Adam(rate)
        self._names = self.names()
        parameters = dict(model.named_parameters())
        self.flat = FlatParameters([parameters[name] for name in self._names])

    @classmethod
    def reason_against(cls, workload: Workload, model: FrameModel, nodes: int) -> str:
        """Why there is no compiled step for this workload of the model; empty where there is."""
        return ""

    @classmethod
    def width(cls, model: FrameModel) -> int:
        """Floats a vertex of the aggregation in a step, 0 where there is none but the kept one."""
        return 0

    @abstractmethod
    def names(self) -> list[str]:
        """Names of the parameters in the order of the compiled step."""

    @abstractmethod
    def run(self, frame: int, *, update: bool = True, output: Tensor | None = None) -> float:
        """Train on a frame; returns its loss before the update.

        Args:
            update: False makes the gradients only.
            output: where the hidden output of the last snapshot goes, [N, D].
        """

    def gradients(self) -> dict[str, Tensor]:
        """Copies of the gradients of the last run, by the model's names."""
        found = dict(zip(self._names, self.flat.gradients(), strict=True))
        return {name: found[name] for name, _ in self.model.named_parameters()}

    def moments(self) -> dict[str, AdamMoments]:
        """Adam's moments as they lie there, by the model's names."""
        first, second = (
            dict(zip(self._names, self.flat.split(flat), strict=True)) for flat in self.flat.moments
        )
        return {name: AdamMoments(first[name], second[name]) for name in self._names}

    def _targets(self, frame: int) -> Tensor:
        targets = self.task.targets(frame)
        assert targets is not None  # reason_against has seen to it
        return targets


class GcnGruStep(CompiledStep):
    """Of the T-GCN model (Zhao et al.): nothing is aggregated but what the engine keeps."""

    def names(self) -> list[str]:
        layers = [f"{layer}_{gate}" for gate in "zrh" for layer in ("conv", "linear")]
        tensors = [f"{layer}.{kind}" for layer in layers for kind in ("weight", "bias")]
        return [*tensors, "head.linear.weight", "head.linear.bias"]

    def run(self, frame: int, *, update: bool = True, output: Tensor | None = None) -> float:
        return tgcn_model_step(
            self.flat,
            self.engine.first(self.task.times(frame)),
            self._targets(frame),
            self.model.hidden_dim,
            every=self.task.every,
            adam=self.adam if update else None,
            output=output,
        )


class EvolveGcnStep(CompiledStep):
    """Of EvolveGCN-O with GRU cells; the head is folded into the second layer, whose aggregation is
    one float wide by that."""

    @classmethod
    def width(cls, model: FrameModel) -> int:
        return 1

    @classmethod
    def reason_against(cls, workload: Workload, model: FrameModel, nodes: int) -> str:
        return "" if workload.cell == "gru" else f"the cell is '{workload.cell}', theirs is 'gru'"

    def names(self) -> list[str]:
        cell = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        tensors = [
            f"{layer}.{name}"
            for layer in ("layer_1", "layer_2")
            for name in ("initial", *(f"cell.{part}" for part in cell))
        ]
        return [*tensors, "head.linear.weight", "head.linear.bias"]

    def run(self, frame: int, *, update: bool = True, output: Tensor | None = None) -> float:
        times = self.task.times(frame)
        return evolvegcn_step(
            self.flat,
            self.engine.first(times),
            self.engine.product(times, 1),
            self._targets(frame),
            self.model.hidden_dim,
            every=self.task.every,
            adam=self.adam if update else None,
            output=output,
        )


class MpnnLstmStep(CompiledStep):
    """Of MPNN-LSTM where the last snapshot of a frame is scored."""

    @classmethod
    def width(cls, model: FrameModel) -> int:
        return model.hidden_dim

    @classmethod
    def reason_against(cls, workload: Workload, model: FrameModel, nodes: int) -> str:
        if workload.loss_on != "last":
            return "the loss is on every snapshot, theirs on the last"
        if not isinstance(model.norm_1, FrameNorm) or model.dropout:
            return "the model has no norm or has dropout, theirs has the norm alone"
        if workload.frame * nodes < 2:
            return "a frame of one row has no variance"
        return ""

    def names(self) -> list[str]:
        tensors = [f"{layer}.{kind}" for layer in LAYERS for kind in ("weight", "bias")]
        cell = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
        tensors += [f"{layer}.{part}" for layer in ("lstm_1", "lstm_2") for part in cell]
        return [*tensors, "head.linear.weight", "head.linear.bias"]

    def run(self, frame: int, *, update: bool = True, output: Tensor | None = None) -> float:
        times = self.task.times(frame)
        hidden = self.model.hidden_dim
        return mpnn_lstm_step(
            self.flat,
            self.engine.first(times),
            self.engine.sequence.features[times.start : times.stop],
            self.engine.product(times, hidden),
            self._targets(frame)[-1],
            hidden,
            adam=self.adam if update else None,
            output=output,
        )


LAYERS: Final = ("conv_1", "conv_2", "norm_1", "norm_2")

STEPS: Final[Mapping[type[FrameModel], type[CompiledStep]]] = {
    GcnGru: GcnGruStep,
    EvolveGcnO: EvolveGcnStep,
    MpnnLstm: MpnnLstmStep,
}


def reason_against(
    workload: Workload, model: FrameModel, engine: Engine, switches: Mapping[str, bool]
) -> str:
    """Why this workload has no compiled step here; empty where it has one."""
    if engine.device.type == "cuda":
        if not switches["pipeline"]:
            return "without pipeline a step is sent what is not pinned, which no CUDA graph copies"
        if switches["slice_coalescing"]:
            return "slice_coalescing aggregates with a kernel of its own"
        return ""
    if engine.copies:
        return "what an arena is sent is computed on operator by operator"
    missing = [name for name in BUILT_IN if not switches[name]]
    if missing:
        return f"{' and '.join(missing)} is off, which they have built in"
    if switches["slice_coalescing"]:
        return "slice_coalescing aggregates with a kernel of its own"
    if not isinstance(model.head, NodeHead):
        return f"the task is '{workload.task}', they have the squared error of the task 'node'"
    step = STEPS.get(type(model))
    if step is None:
        return f"there is none for {type(model).__name__}"
    return step.reason_against(workload, model, engine.sequence.num_nodes)


def compiled_step(
    workload: Workload,
    model: FrameModel,
    engine: Engine,
    task: FrameTask,
) -> CompiledStep:
    """The compiled step of a workload against which there is no reason."""
    return STEPS[type(model)](model, engine, task, workload.lr)
