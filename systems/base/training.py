"""Training on frames, shared by all discrete-time systems.

A system differs from another only in how it computes the hidden outputs of a frame
(`FrameTrainer.outputs`); frames, targets, loss, optimiser and bookkeeping are here, so that a
difference between two systems can only come from that.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from dgbench.kernels_cuda.csr import Csr
from dgbench.models import FrameModel, build_model
from dgbench.runtime.errors import InvalidInputError, UnsupportedError
from dgbench.runtime.meter import Meter
from dgbench.runtime.readback import Readback
from dgbench.systems.base.system import FrameResult, Trainer
from dgbench.systems.base.workload import Workload

if TYPE_CHECKING:
    from dgbench.datasets import SnapshotSequence

MAX_PAIRS = 8192
"""Positive pairs of one snapshot in the `link` task, at most; as many negatives are drawn."""


def model_for(workload: Workload) -> FrameModel:
    """The workload's model with its head, float32 on the CPU, parameters from its seed."""
    return build_model(
        workload.model,
        feature_dim=workload.feature_dim,
        hidden_dim=workload.hidden_dim,
        task=workload.task,
        cell=workload.cell,
        frame=workload.frame,
        seed=workload.seed,
    )


def check_device(device: str) -> torch.device:
    """`device` as torch knows it; raises UnsupportedError if it is a GPU and there is none."""
    found = torch.device(device)
    if found.type == "cuda" and not torch.cuda.is_available():
        raise UnsupportedError("there is no CUDA device here", hint="use the device cpu")
    return found


def coordinates(csr: Csr) -> tuple[Tensor, Tensor]:
    """(source, destination) of every stored entry, int64[nnz] each, in row order."""
    rows = torch.arange(csr.num_rows, device=csr.indptr.device)
    return csr.indices.long(), torch.repeat_interleave(rows, csr.indptr.diff())


class FrameTask:
    """Frames of a snapshot sequence, and the loss of the model's outputs on each.

    Frame i covers snapshots `i * stride .. i * stride + W - 1`; the snapshot after it must exist,
    as it holds the target, so T snapshots have (T - W - 1) // stride + 1 frames.
    """

    def __init__(
        self,
        data: SnapshotSequence,
        workload: Workload,
        *,
        device: torch.device,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.workload = workload
        self.every = workload.loss_on == "every"
        self.num_frames = max(0, (len(data) - workload.frame - 1) // workload.stride + 1)
        self._topology = data.topology
        self._num_nodes = data.num_nodes
        self._device = device
        self._dtype = dtype
        self._targets: Tensor | None = None
        if workload.task == "node":
            self._targets = torch.as_tensor(data.targets).to(device, dtype)
        self._pairs: dict[int, tuple[Tensor, Tensor]] = {}

    def times(self, frame: int) -> range:
        """Snapshots of a frame. Raises InvalidInputError for a frame that does not exist."""
        if not 0 <= frame < self.num_frames:
            raise InvalidInputError(f"frame must be in 0..{self.num_frames - 1}, got {frame}")
        first = frame * self.workload.stride
        return range(first, first + self.workload.frame)

    def targets(self, frame: int) -> Tensor | None:
        """Regression targets of a frame's snapshots, [W, N]; None where the task scores pairs."""
        if self._targets is None:
            return None
        times = self.times(frame)
        return self._targets[times.start + 1 : times.stop + 1]

    def pairs(self, t: int) -> tuple[Tensor, Tensor]:
        """Pairs int64[2, P] and labels [P] that the output of snapshot t - 1 is scored on.

        Positives are the edges of snapshot t, a seeded choice of MAX_PAIRS where there are more;
        negatives are as many seeded random ordered pairs (which may hit an edge, rarely).
        """
        if t not in self._pairs:
            source, target = coordinates(self._topology[t])
            positive = torch.stack([source, target]).cpu()
            draw = torch.Generator().manual_seed(self.workload.seed * 1_000_003 + t)
            if positive.shape[1] > MAX_PAIRS:
                keep = torch.randperm(positive.shape[1], generator=draw)[:MAX_PAIRS]
                positive = positive[:, keep]
            count = positive.shape[1]
            negative = torch.randint(0, self._num_nodes, (2, count), generator=draw)
            label = torch.zeros(2 * count, dtype=self._dtype)
            label[:count] = 1
            pairs = torch.cat([positive, negative], dim=1)
            self._pairs[t] = pairs.to(self._device), label.to(self._device)
        return self._pairs[t]

    def loss(self, head: nn.Module, frame: int, outputs: Sequence[Tensor] | Tensor) -> Tensor:
        """Scalar loss of a frame's hidden outputs [N, D], the last of which is the last snapshot's.

        With `loss_on="last"` only `outputs[-1]` is read; with "every" the mean over the frame.
        Outputs in one tensor [W, N, D] go through the head in one call where all have targets.
        """
        times = self.times(frame)
        if not self.every:
            return self._snapshot_loss(head, times[-1], outputs[-1])
        if isinstance(outputs, Tensor) and self._targets is not None:
            # Snapshots are equally large, so the mean over all rows is the mean of their means.
            return head.loss(outputs, self.targets(frame))
        outputs = outputs.unbind(0) if isinstance(outputs, Tensor) else outputs
        losses = [self._snapshot_loss(head, t, h) for t, h in zip(times, outputs, strict=True)]
        return torch.stack(losses).mean()

    def _snapshot_loss(self, head: nn.Module, t: int, hidden: Tensor) -> Tensor:
        if self._targets is not None:
            return head.loss(hidden, self._targets[t + 1])
        return head.loss(hidden, *self.pairs(t + 1))


class FrameTrainer(Trainer):
    """A trainer that only lacks the computation of a frame's outputs.

    Attributes:
        model: the shared model with its head, on the device.
        task: frames and loss.
        notes: sentences that a row of this trainer should carry.
    """

    def __init__(
        self,
        workload: Workload,
        data: SnapshotSequence,
        *,
        device: str = "cpu",
        meter: Meter | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.workload = workload
        self.data = data
        self.device = check_device(device)
        self.dtype = dtype
        self.meter = meter if meter is not None else Meter(device=device)
        self.model = model_for(workload).to(self.device, dtype)
        self.task = FrameTask(data, workload, device=self.device, dtype=dtype)
        self.num_frames = self.task.num_frames
        self.notes: list[str] = []
        self._optimiser: torch.optim.Adam | None = None

    @abstractmethod
    def outputs(self, times: range) -> Sequence[Tensor]:
        """Hidden outputs [N, D] of a frame's snapshots, last one last, with their graph.

        All W of them where `workload.loss_on` is "every"; else the last alone is enough.
        Implementations bracket their work in the meter's phases `transfer` and `compute`.
        """

    def trained(self) -> dict[str, Tensor]:
        """The leaf tensors that are trained, by the shared model's names.

        A system that trains other tensors (a released cell's) overrides this together with
        `shared`.
        """
        return dict(self.model.named_parameters())

    def step(self, frame: int) -> float:
        loss = self.enqueue(frame).value()
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)  # the update, too
        return loss

    def enqueue(self, frame: int) -> Readback:
        optimiser = self.optimiser()
        optimiser.zero_grad(set_to_none=True)
        loss = self._loss(frame)
        with self.meter.phase("compute"):
            loss.backward()
        with self.meter.phase("update"):
            optimiser.step()
        return Readback(loss)

    def optimiser(self, **options: bool) -> torch.optim.Adam:
        """Adam over what is trained, made at the first call, with torch's `options` of then."""
        if self._optimiser is None:
            leaves = list(self.trained().values())
            # Fused: one call for all leaves; else small graphs spend a tenth of a step on updates.
            self._optimiser = torch.optim.Adam(leaves, lr=self.workload.lr, fused=True, **options)
        return self._optimiser

    def _loss(self, frame: int) -> Tensor:
        outputs = self.outputs(self.task.times(frame))
        with self.meter.phase("compute"):
            return self.task.loss(self.model.head, frame, outputs)

    @torch.no_grad()
    def evaluate(self, frame: int) -> Tensor:
        """Hidden output of the frame's last snapshot, [N, D] on the CPU."""
        return self.outputs(self.task.times(frame))[-1].detach().cpu()

    @torch.no_grad()
    def loss(self, frame: int) -> float:
        """Loss of a frame without training on it."""
        return float(self._loss(frame))

    def state(self) -> dict[str, Tensor]:
        values = {name: p.detach().cpu().clone() for name, p in self.trained().items()}
        return self.shared(values)

    def gradients(self, frame: int) -> dict[str, Tensor]:
        return self._gradients(self._loss(frame))

    def result(self, frame: int) -> FrameResult:
        """Output, gradients and loss of a frame from a single pass, without an update."""
        outputs = self.outputs(self.task.times(frame))
        loss = self.task.loss(self.model.head, frame, outputs)
        output = outputs[-1].detach().cpu()
        return FrameResult(output, self._gradients(loss), float(loss.detach()))

    def _gradients(self, loss: Tensor) -> dict[str, Tensor]:
        leaves = self.trained()
        found = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
        values = {
            name: (torch.zeros_like(leaf) if grad is None else grad).detach().cpu()
            for (name, leaf), grad in zip(leaves.items(), found, strict=True)
        }
        return self.shared(values)

    def close(self) -> None:
        self._optimiser = None
        self.task._pairs.clear()
