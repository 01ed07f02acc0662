"""Training on a whole timeline at once: the workload, its data, its loss, and the plain trainer.

ESDG (SC 2021) trains full batch: one optimiser step per pass over all snapshots. What every system
that does so must agree on lies here; `PlainTimeline` is the oracle they are compared with.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import msgspec
import torch
from torch import Tensor, nn
from torch.nn import functional

from dgbench.models import TIMELINE_MODELS, TimelineModel, build_model, sample_pairs
from dgbench.runtime.errors import InvalidInputError
from dgbench.runtime.fields import check_choices, check_counts
from dgbench.runtime.meter import Meter
from dgbench.systems.base import data as workload_data
from dgbench.systems.base.adam import AdamTrainer
from dgbench.systems.base.system import FrameResult
from dgbench.systems.base.training import check_device, coordinates

if TYPE_CHECKING:
    from dgbench.datasets import SnapshotSequence
    from dgbench.kernels_cuda.csr import Csr

TASKS = ("link", "class", "node")
SMOOTHINGS = ("none", "edge_life", "m_transform")


class TimelineWorkload(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A training task over a whole timeline; defaults are the paper's where it prints them.

    Attributes:
        dataset: name of a `DatasetCard`.
        model: `cd_gcn`, `tm_gcn` or `evolvegcn_o`.
        source: `real`, `twin`, or `auto` (real where it can be had, else the twin).
        scale: size factor of a twin.
        bins: T, windows that events are cut into; None takes the card's.
        snapshots: how many to keep, the last ones, as they are in the whole smoothed sequence; None
            keeps all.
        feature_dim: floats per vertex; the paper's two are in-degree and out-degree.
        hidden_dim: floats per vertex of every later layer.
        task: `link` (edges of the next snapshot against random pairs), `class` (a class per vertex
            and snapshot) or `node` (next snapshot's target, mean squared error).
        classes: of the task `class`.
        theta: share of a snapshot's edges that `link` takes as positives.
        smoothing: `none`, `edge_life` or `m_transform` (which also averages the features).
        edge_life: snapshots that an edge lives, its own included, with that smoothing.
        repeats: an edge that occurs several times in its life weighs their number (`add`, the
            paper's sum) or 1 (`once`: no values, so a device can form all scales from degrees).
        window: w of the M-transform: of the smoothing, and of TM-GCN's layer.
        norm: `sym` or `mean`, see `datasets.transforms.factors`.
        lr: learning rate of Adam.
        seed: seeds parameters, pairs and twins.
    """

    dataset: str
    model: Literal["cd_gcn", "tm_gcn", "evolvegcn_o"]
    source: Literal["auto", "real", "twin"] = "auto"
    scale: float = 1.0
    bins: int | None = None
    snapshots: int | None = None
    feature_dim: int = 2
    hidden_dim: int = 6
    task: Literal["link", "class", "node"] = "link"
    classes: int = 2
    theta: float = 0.1
    smoothing: Literal["none", "edge_life", "m_transform"] = "none"
    edge_life: int = 1
    repeats: Literal["add", "once"] = "add"
    window: int = 1
    norm: Literal["sym", "mean"] = "sym"
    lr: float = 1e-3
    seed: int = 1

    def check(self) -> TimelineWorkload:
        """Return self; raise InvalidInputError or UnknownKeyError naming a field out of range."""
        words = {
            "model": TIMELINE_MODELS,
            "task": TASKS,
            "smoothing": SMOOTHINGS,
            "norm": ("sym", "mean"),
            "repeats": ("add", "once"),
        }
        check_choices(self, words)
        sizes = ("feature_dim", "hidden_dim", "classes", "edge_life", "window")
        check_counts(self, sizes, optional=("bins", "snapshots"))
        if not 0 < self.theta <= 1:
            raise InvalidInputError(f"theta is {self.theta!r}, allowed is a share in (0, 1]")
        return self


def load_timeline(workload: TimelineWorkload) -> SnapshotSequence:
    """The snapshots of a workload, smoothed, not yet normalised (that is `factors` of each).

    Degrees of the raw snapshots are the features, so that smoothing the graph does not do it to
    them twice; the M-transform averages them by the same window. Edges of the smoothed snapshots
    are what `link` predicts.

    Returns:
        `len()` is T. Models run over `TimelineTask.steps` of them.

    Raises:
        UnknownKeyError, InvalidInputError: a field out of range, or data that cannot be trained on.
        MissingDataError, DataError: from the datasets floor.
    """
    from dgbench import datasets

    workload.check()
    spec = datasets.SnapshotSpec(
        dataset=workload.dataset,
        source=workload.source,
        scale=workload.scale,
        seed=workload.seed,
        snapshots=workload.bins,
        feature_dim=workload.feature_dim,
        features="degree",
    )
    kept = workload.snapshots
    # What is smoothed into the first snapshot kept must be there while smoothing, and not longer.
    before = None if kept is None else kept + _reach(workload)
    data = smooth(workload_data.latest(datasets.open_snapshots(spec), before), workload)
    return checked(workload_data.latest(data, kept), workload)


def _reach(workload: TimelineWorkload) -> int:
    """Snapshots before one that its smoothing reads."""
    if workload.smoothing == "none":
        return 0
    return (workload.edge_life if workload.smoothing == "edge_life" else workload.window) - 1


def smooth(data: SnapshotSequence, workload: TimelineWorkload) -> SnapshotSequence:
    """The sequence after the workload's smoothing (ESDG, section 5.1); itself for `none`."""
    from dgbench.datasets import SnapshotSequence
    from dgbench.datasets.transforms import edge_life, m_transform, m_transform_features

    if workload.smoothing == "none":
        return data
    features = data.features
    if workload.smoothing == "edge_life":
        topology = list(data.topology)
        if workload.repeats == "add" and workload.edge_life > 1:
            topology = [_with_ones(csr) for csr in topology]
        topology = edge_life(topology, workload.edge_life)
    else:
        topology = m_transform(data.topology, workload.window)
        features = m_transform_features(features, workload.window)
    return SnapshotSequence(
        topology=topology,
        features=features,
        targets=data.targets,
        num_nodes=data.num_nodes,
        origin=data.origin,
        spec=data.spec,
    )


def _with_ones(csr: Csr) -> Csr:
    return csr if csr.values is not None else replace(csr, values=torch.ones(csr.nnz))


def checked(data: SnapshotSequence, workload: TimelineWorkload) -> SnapshotSequence:
    """`data` itself, if the workload can be trained on it; raises InvalidInputError if not."""
    least = 1 if workload.task == "class" else 2
    if len(data) < least:
        raise InvalidInputError(
            f"the task '{workload.task}' needs {least} snapshots, '{workload.dataset}' has "
            f"{len(data)}",
            hint="the last one is the target of 'link' and 'node'",
        )
    workload_data.check_features(data, workload.dataset, workload.feature_dim)
    workload_data.check_degrees(data)
    return data


def timeline_model(workload: TimelineWorkload) -> TimelineModel:
    """The model of a workload with its head, equal in every system."""
    return build_model(
        workload.model,
        feature_dim=workload.feature_dim,
        hidden_dim=workload.hidden_dim,
        task=workload.task,
        window=workload.window,
        classes=workload.classes,
        seed=workload.seed,
    )


def class_labels(targets: Tensor, classes: int) -> Tensor:
    """Classes of equal size from a number per vertex: int64 [T, N], the larger the higher.

    The held data has no label per vertex and step, so classes are quantiles of the targets over
    all snapshots; equal numbers fall into one class, whatever that does to the sizes.
    """
    flat = targets.flatten().double().sort().values
    cuts = [flat[min(len(flat) - 1, len(flat) * k // classes)] for k in range(1, classes)]
    if not cuts:
        return torch.zeros(targets.shape, dtype=torch.int64)
    return torch.bucketize(targets.double(), torch.stack(cuts), right=True)


class TimelineTask:
    """Snapshots that a model runs over, and the loss of its outputs on them.

    The loss of a timeline is one mean over everything scored at all its steps, so ranks and blocks
    add `loss_sum` and divide by `count`.

    Attributes:
        steps: snapshots the model runs over: T for `class`, whose labels are the snapshot's own,
            T - 1 for `link` and `node`, whose last snapshot is only a target.
        count: pairs or vertices scored over all steps, at least 1.
    """

    def __init__(
        self,
        data: SnapshotSequence,
        workload: TimelineWorkload,
        *,
        device: torch.device | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        device = device or torch.device("cpu")
        self.workload = workload
        self.steps = len(data) - (workload.task != "class")
        self._pairs: list[tuple[Tensor, Tensor]] = []
        self._targets: Tensor | None = None
        if workload.task == "link":
            for t in range(1, len(data)):
                pairs, label = sample_pairs(
                    data.topology[t], workload.theta, seed=workload.seed, step=t
                )
                self._pairs.append((pairs.to(device), label.to(device)))
            counts = [label.numel() for _, label in self._pairs]
        else:
            targets = torch.as_tensor(data.targets)
            if workload.task == "class":
                self._targets = class_labels(targets, workload.classes).to(device)
            else:
                self._targets = targets[1:].to(device, dtype)
            counts = [data.num_nodes] * self.steps
        self.count = max(1, sum(counts))

    def pairs(self, t: int) -> tuple[Tensor, Tensor]:
        """Of the task `link`: int64[2, P] and labels int64[P] that step t's output is scored on."""
        return self._pairs[t]

    def target(self, t: int) -> Tensor:
        """Of the other tasks: what step t's output is scored against, [N]."""
        return self._targets[t]

    def loss_sum(
        self, head: nn.Module, t: int, hidden: Tensor, rows: slice | None = None
    ) -> Tensor:
        """Summed loss of one step's outputs, a scalar.

        Args:
            head: of the model.
            t: 0 .. steps - 1.
            hidden: [N, D]; for `class` and `node` also [rows, D], a part of the vertices.
            rows: which part; None for all.
        """
        if self._targets is None:
            return head.loss_sum(hidden, *self._pairs[t])
        target = self._targets[t] if rows is None else self._targets[t][rows]
        if self.workload.task == "class":
            return head.loss_sum(hidden, target)
        return functional.mse_loss(head(hidden), target, reduction="sum")

    @torch.no_grad()
    def hits(self, head: nn.Module, t: int, hidden: Tensor) -> tuple[int, int]:
        """Right predictions and all predictions of a step, of `link` and `class`."""
        if self.workload.task == "node":
            raise InvalidInputError("task is 'node', which has no classes to be right about")
        if self._targets is None:
            pairs, label = self._pairs[t]
            scores = head(hidden, pairs)
        else:
            label, scores = self._targets[t], head(hidden)
        return int((scores.argmax(-1) == label).sum()), label.numel()


class TimelineTrainer(AdamTrainer):
    """A trainer of one full-batch step per epoch; it lacks the computation only.

    Attributes:
        model: with its head, on the device.
        task: steps and loss.
        num_frames: 1, the timeline.
        losses: of every training step so far, before it.
        last_loss: of the last gradient that was formed.
    """

    num_frames = 1

    def __init__(
        self,
        workload: TimelineWorkload,
        data: SnapshotSequence,
        *,
        device: str = "cpu",
        meter: Meter | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.workload = workload.check()
        self.data = checked(data, workload)
        self.device = check_device(device)
        self.dtype = dtype
        self.meter = meter if meter is not None else Meter(device=device)
        self.model = timeline_model(workload).to(self.device, dtype)
        self.task = TimelineTask(data, workload, device=self.device, dtype=dtype)
        self.notes: list[str] = []
        self.losses: list[float] = []
        self.last_loss = float("nan")

    @abstractmethod
    def accumulate(self) -> float:
        """Add the gradient of the timeline's loss to `.grad` of all parameters; the loss."""

    @abstractmethod
    def outputs(self) -> Sequence[Tensor]:
        """Hidden outputs [N, D] of all steps, without history."""

    def step(self, frame: int = 0) -> float:
        self._check(frame)
        self.optimiser.zero_grad(set_to_none=True)
        self.last_loss = loss = self.accumulate()
        self.losses.append(loss)
        with self.meter.phase("update"):
            self.optimiser.step()
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return loss

    def train_epoch(self) -> float:
        """One step on the whole timeline; the loss before it."""
        return self.step(0)

    def evaluate(self, frame: int = 0) -> Tensor:
        """Hidden output of the last step, [N, D] on the CPU."""
        self._check(frame)
        return self.outputs()[-1].detach().cpu()

    def accuracy(self) -> float:
        """Share of right predictions of the last step that has any to make; link and class."""
        outputs = self.outputs()
        for t in reversed(range(self.task.steps)):
            right, total = self.task.hits(self.model.head, t, outputs[t])
            if total:
                return right / total
        return 0.0

    def gradients(self, frame: int = 0) -> dict[str, Tensor]:
        self._check(frame)
        self.model.zero_grad(set_to_none=True)
        self.last_loss = self.accumulate()
        return self._formed_gradients()

    def _formed_gradients(self) -> dict[str, Tensor]:
        """Take the gradients that lie in `.grad` of the parameters."""
        found = {
            n: (torch.zeros_like(p) if p.grad is None else p.grad).detach().cpu().clone()
            for n, p in self.model.named_parameters()
        }
        self.model.zero_grad(set_to_none=True)
        return found

    def _check(self, frame: int) -> None:
        if frame != 0:
            raise InvalidInputError(f"frame is {frame}; a timeline has the one frame 0")


class PlainAggregator:
    """A-hat as an edge list with one coefficient per entry, loops included.

    Degrees are added up here, in float64, and not taken from what the systems share.
    """

    def __init__(
        self, data: SnapshotSequence, norm: str, device: torch.device, dtype: torch.dtype
    ) -> None:
        self._data, self._norm, self._device, self._dtype = data, norm, device, dtype
        self._kept: dict[int, tuple[Tensor, Tensor, Tensor]] = {}

    def raw(self, t: int) -> Tensor:
        return torch.as_tensor(self._data.features[t]).to(self._device, self._dtype)

    def first(self, t: int) -> Tensor:
        return self.apply(t, self.raw(t))

    def apply(self, t: int, h: Tensor) -> Tensor:
        if t in self._kept:
            source, target, weight = self._kept[t]
        else:
            source, target, weight = self._edges(t)
            if self._dtype == torch.float64:  # the oracle, which nobody times
                self._kept[t] = source, target, weight
        return torch.zeros_like(h).index_add(0, target, h.index_select(0, source) * weight[:, None])

    def _edges(self, t: int) -> tuple[Tensor, Tensor, Tensor]:
        """Source, destination and coefficient of every entry and loop."""
        csr: Csr = self._data.topology[t]
        source, target = coordinates(csr)
        weight = torch.ones(csr.nnz) if csr.values is None else csr.values
        loops = torch.arange(csr.num_rows)
        source, target = torch.cat([source, loops]), torch.cat([target, loops])
        weight = torch.cat([weight.double(), torch.ones(csr.num_rows, dtype=torch.float64)])
        degree = torch.zeros(csr.num_rows, dtype=torch.float64).index_add(0, target, weight)
        if self._norm == "sym":
            weight = weight / (degree[target] * degree[source]).sqrt()
        else:
            weight = weight / degree[target]
        weight = weight.to(self._device, self._dtype)
        return source.to(self._device), target.to(self._device), weight


class PlainTimeline(TimelineTrainer):
    """The reference: one process, the whole timeline at once, nothing clever.

    Takes `dtype` float32 or float64.

    Attributes:
        held: steps whose outputs it gives.
    """

    _aggregator: PlainAggregator | None = None

    @property
    def held(self) -> Sequence[int]:
        return range(self.task.steps)

    def accumulate(self) -> float:
        loss = self.loss_of(self.forward())
        loss.backward()
        return float(loss.detach())

    @torch.no_grad()
    def outputs(self) -> Sequence[Tensor]:
        return self.forward()

    def result(self, frame: int = 0) -> FrameResult:
        """Output of the last step, gradients and loss from a single pass, without an update."""
        self._check(frame)
        self.model.zero_grad(set_to_none=True)
        outputs = self.forward()
        loss = self.loss_of(outputs)
        loss.backward()
        output = outputs[-1].detach().cpu()
        return FrameResult(output, self._formed_gradients(), float(loss.detach()))

    def forward(self) -> list[Tensor]:
        """Hidden outputs [N, D] of all steps, with history."""
        return self.model.forward_frame(self.aggregator(), range(self.task.steps))

    def aggregator(self) -> PlainAggregator:
        """A-hat of every step."""
        if self._aggregator is None:
            norm = self.workload.norm
            self._aggregator = PlainAggregator(self.data, norm, self.device, self.dtype)
        return self._aggregator

    def loss_of(self, outputs: Sequence[Tensor]) -> Tensor:
        """Mean loss over everything that is scored, a scalar with history."""
        losses = [self.task.loss_sum(self.model.head, t, h) for t, h in enumerate(outputs)]
        return torch.stack(losses).sum() / self.task.count
