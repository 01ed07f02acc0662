"""Training on vertex-steps and their sequences: the workload, its data, its loss, its trainer.

DGC (Chen, Li, Wu) trains full batch on vertices that exist in some snapshots only. A vertex in one
snapshot is a vertex-step, the vertex-steps of an entity are its sequence. What every system that
trains so must agree on lies here; `plain_sequences.PlainSequences` is the oracle they are compared
with.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import msgspec
import torch
from torch import Tensor, nn

from dgbench.kernels_cuda.supergraph import PRESENCE, Presence, Supergraph, build_supergraph
from dgbench.models import (
    SEQUENCE_MODELS,
    SequenceModel,
    build_model,
    sample_pairs,
)
from dgbench.runtime.errors import InvalidInputError
from dgbench.runtime.fields import check_choices, check_counts
from dgbench.runtime.meter import Meter
from dgbench.systems.base import data as workload_data
from dgbench.systems.base.adam import AdamTrainer
from dgbench.systems.base.training import check_device

if TYPE_CHECKING:
    from dgbench.datasets import SnapshotSequence
    from dgbench.kernels_cuda.csr import Csr

TASKS: Final = ("active", "link")
_ACTIVE_SEED, _TEST_SEED = 15_485_863, 32_452_843
"""Apart from each other and from the seeds of pairs, so that no draw repeats another."""


class SequenceWorkload(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A training task over vertex-steps.

    The paper (section 7.1) states neither task, hidden sizes, heads nor learning rate; in-degree
    and out-degree are its features.

    Attributes:
        dataset: name of a `DatasetCard`.
        model: `tgcn_2layer`, `dysat` or `mpnn_lstm_bare`.
        source: `real`, `twin`, or `auto` (real where it can be had, else the twin).
        scale: size factor of a twin.
        bins: windows that events are cut into; None takes the card's.
        snapshots: how many the model runs over, the last ones; one more is the target. None: all.
        feature_dim, hidden_dim: floats of a vertex-step in and inside.
        heads: of DySAT.
        causal: DySAT's steps see no later ones, as in the original; False: all of their sequence,
            as the paper says that a vertex needs its counterparts of all snapshots.
        task: `active` (has the vertex an edge in the next snapshot?) or `link` (edges of the next
            snapshot against random pairs).
        theta: share of a snapshot's edges that `link` takes as positives.
        held_out: share of what is scored that is never trained on, but tested; in [0, 1).
        presence: when a vertex exists, see `build_supergraph`.
        norm: `sym` or `mean`, see `datasets.transforms.factors`.
        lr: learning rate of Adam.
        seed: seeds parameters, what is scored, and twins.
    """

    dataset: str
    model: Literal["tgcn_2layer", "dysat", "mpnn_lstm_bare"]
    source: Literal["auto", "real", "twin"] = "auto"
    scale: float = 1.0
    bins: int | None = None
    snapshots: int | None = None
    feature_dim: int = 2
    hidden_dim: int = 32
    heads: int = 1
    causal: bool = False
    task: Literal["active", "link"] = "active"
    theta: float = 0.1
    held_out: float = 0.2
    presence: Presence = "span"
    norm: Literal["sym", "mean"] = "sym"
    lr: float = 1e-3
    seed: int = 1

    def check(self) -> SequenceWorkload:
        """Return self; raise InvalidInputError or UnknownKeyError naming a field out of range."""
        words = {
            "model": SEQUENCE_MODELS,
            "task": TASKS,
            "presence": tuple(PRESENCE),
            "norm": ("sym", "mean"),
        }
        check_choices(self, words)
        sizes = ("feature_dim", "hidden_dim", "heads")
        check_counts(self, sizes, optional=("bins", "snapshots"))
        if not 0 < self.theta <= 1:
            raise InvalidInputError(f"theta is {self.theta!r}, allowed is a share in (0, 1]")
        if not 0 <= self.held_out < 1:
            raise InvalidInputError(f"held_out is {self.held_out!r}, allowed is a share in [0, 1)")
        return self


def load_sequences(workload: SequenceWorkload) -> SnapshotSequence:
    """The snapshots of a workload, T - 1 that the model runs over and the target.

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
    kept = None if workload.snapshots is None else workload.snapshots + 1
    return checked(workload_data.latest(datasets.open_snapshots(spec), kept), workload)


def checked(data: SnapshotSequence, workload: SequenceWorkload) -> SnapshotSequence:
    """`data` itself, if the workload can be trained on it; raises InvalidInputError if not."""
    if len(data) < 2:
        raise InvalidInputError(
            f"'{workload.dataset}' has {len(data)} snapshots, 2 are needed",
            hint="the last one is only a target",
        )
    workload_data.check_features(data, workload.dataset, workload.feature_dim)
    workload_data.check_degrees(data)
    return data


def vertex_steps(
    data: SnapshotSequence,
    workload: SequenceWorkload,
    *,
    spatial: int = 1,
    temporal: int = 1,
    per_length: bool = False,
    threads: int | None = None,
) -> Supergraph:
    """The vertex-steps that a model runs over, those of all snapshots but the last.

    Their numbers are the order of rows everywhere: by entity, then by step.

    Args:
        data: of `load_sequences`.
        workload: says which vertices exist.
        spatial, temporal, per_length, threads: weights of edges, see `build_supergraph`.
    """
    return build_supergraph(
        [data.topology[t] for t in range(len(data) - 1)],
        spatial=spatial,
        temporal=temporal,
        per_length=per_length,
        presence=workload.presence,
        threads=threads,
    )


def find_vertex_steps(graph: Supergraph, entity: Tensor, step: Tensor) -> Tensor:
    """int64 like `entity`: the number of each (entity, step), -1 where it does not exist."""
    if not graph.num_vertices:
        return torch.full_like(entity, -1, dtype=torch.int64)
    key = graph.entity.long() * graph.steps + graph.step
    wanted = entity.long() * graph.steps + step
    at = torch.searchsorted(key, wanted).clamp_(max=key.numel() - 1)
    return torch.where((key[at] == wanted) & (step < graph.steps), at, -1)


def by_step(graph: Supergraph) -> tuple[Tensor, ...]:
    """Of each snapshot its vertex-steps, int64, entities ascending."""
    order = torch.argsort(graph.step, stable=True)
    return order.split(torch.bincount(graph.step, minlength=graph.steps).tolist())


def sequence_model(workload: SequenceWorkload) -> SequenceModel:
    """The model of a workload with its head, equal in every system."""
    return build_model(
        workload.model,
        feature_dim=workload.feature_dim,
        hidden_dim=workload.hidden_dim,
        task="class" if workload.task == "active" else "link",
        classes=2,
        heads=workload.heads,
        causal=workload.causal,
        seed=workload.seed,
    )


@dataclass(frozen=True, slots=True, eq=False)
class ScoredOutputs:
    """Rows of outputs that are scored, and their labels.

    Attributes:
        places: int64[S] rows of `active`, int64[2, S] pairs of rows of `link`.
        label: int64[S], 0 or 1.
        test: bool[S], never trained on.
    """

    places: Tensor
    label: Tensor
    test: Tensor

    def to(self, device: torch.device) -> ScoredOutputs:
        """The same on a device."""
        return ScoredOutputs(self.places.to(device), self.label.to(device), self.test.to(device))


class SequenceTask:
    """Scored vertex-steps and their loss.

    The loss is one mean over everything trained on, so workers add `loss_sum` and divide by
    `count`. Drawn alike for every partition: from the seed, the data and the vertex-steps alone.

    Attributes:
        scored: over the numbers of vertex-steps. With `link`, V stands for a vertex that does not
            exist in the snapshot before its pair; its output is zero.
        count: scored and trained on, at least 1.
        tested: scored and never trained on.
    """

    def __init__(
        self, data: SnapshotSequence, workload: SequenceWorkload, graph: Supergraph
    ) -> None:
        self.workload = workload
        self.vertices = graph.num_vertices
        draw = _active if workload.task == "active" else _pairs
        places, label = draw(data, workload, graph)
        generator = torch.Generator().manual_seed(workload.seed * 1_000_003 + _TEST_SEED)
        held = torch.randperm(label.numel(), generator=generator)
        test = torch.zeros(label.numel(), dtype=torch.bool)
        test[held[: int(workload.held_out * label.numel())]] = True
        self.scored = ScoredOutputs(places, label, test)
        self.tested = int(test.sum())
        self.count = max(1, label.numel() - self.tested)

    def owners(self, worker: Tensor) -> Tensor:
        """int32[S]: who scores what, for the worker of each vertex-step.

        A pair is its first vertex's, or where that does not exist its second's, or the first
        worker's.
        """
        if self.workload.task == "active":
            return worker[self.scored.places]
        padded = torch.cat([worker, worker.new_full((1,), -1)])
        first, second = padded[self.scored.places]
        return torch.where(first >= 0, first, second).clamp(min=0)

    def loss_sum(self, head: nn.Module, hidden: Tensor, part: ScoredOutputs) -> Tensor:
        """Summed cross entropy of what is trained on, a scalar.

        Args:
            head: of the model.
            hidden: [R, D].
            part: over the rows of `hidden`; with `link` also R, a row of zeros.
        """
        trained = ~part.test
        places, label = part.places[..., trained], part.label[trained]
        if self.workload.task == "active":
            return head.loss_sum(hidden.index_select(0, places), label)
        return head.loss_sum(_with_zero(hidden), places, label)

    @torch.no_grad()
    def hits(self, head: nn.Module, hidden: Tensor, part: ScoredOutputs) -> tuple[int, int]:
        """Right predictions and all predictions of what is held out (of everything, if nothing)."""
        test = part.test if self.tested else torch.ones_like(part.test)
        places, label = part.places[..., test], part.label[test]
        if self.workload.task == "active":
            scores = head(hidden.index_select(0, places))
        else:
            scores = head(_with_zero(hidden), places)
        return int((scores.argmax(-1) == label).sum()), label.numel()


def _with_zero(hidden: Tensor) -> Tensor:
    return torch.cat([hidden, hidden.new_zeros(1, hidden.shape[1])])


def untrained_accuracy(
    data: SnapshotSequence, task: SequenceTask, graph: Supergraph
) -> dict[str, float]:
    """Accuracy of predictors that train nothing, on what is held out of a task `active`.

    A vertex is said to have an edge in the next snapshot where it has one now (`last_value`), or
    had one in at least half of the snapshots so far, this one included (`historical_mean`). Empty
    where nothing is held out, or the task is another.
    """
    if task.workload.task != "active" or not task.tested:
        return {}
    now = torch.stack([_with_edges(data.topology[t]) for t in range(len(data) - 1)])
    share = now.double().cumsum(0) / torch.arange(1, len(now) + 1).unsqueeze(1)
    places, label = task.scored.places[task.scored.test], task.scored.label[task.scored.test]
    step = torch.empty(graph.num_vertices, dtype=torch.int64)
    for number, ids in enumerate(by_step(graph)):
        step[ids] = number
    at = step[places], graph.entity[places].long()
    said = {"last_value": now[at], "historical_mean": share[at] >= 0.5}
    return {name: float((one == label.bool()).double().mean()) for name, one in said.items()}


def _with_edges(csr: Csr) -> Tensor:
    """bool[N]: vertices that have an edge in a snapshot, in either direction."""
    seen = torch.zeros(csr.num_rows, dtype=torch.bool)
    seen[csr.indices.long()] = True
    return seen | (csr.indptr.diff() > 0)


def _active(
    data: SnapshotSequence, workload: SequenceWorkload, graph: Supergraph
) -> tuple[Tensor, Tensor]:
    """Of each snapshot equally many vertex-steps with and without an edge in the next one."""
    places, labels = [], []
    for t, ids in enumerate(by_step(graph)):
        label = _with_edges(data.topology[t + 1])[graph.entity[ids].long()]
        draw = torch.Generator().manual_seed(workload.seed * 1_000_003 + t + _ACTIVE_SEED)
        yes, no = ids[label], ids[~label]
        count = min(yes.numel(), no.numel())
        for some, value in ((yes, 1), (no, 0)):
            if some.numel() > count:
                some = some[torch.randperm(some.numel(), generator=draw)[:count]]
            places.append(some)
            labels.append(torch.full((count,), value))
    return torch.cat(places), torch.cat(labels)


def _pairs(
    data: SnapshotSequence, workload: SequenceWorkload, graph: Supergraph
) -> tuple[Tensor, Tensor]:
    """ESDG's pairs of every next snapshot, over vertex-steps of the snapshot before it."""
    places, labels = [], []
    for t in range(1, len(data)):
        pairs, label = sample_pairs(data.topology[t], workload.theta, seed=workload.seed, step=t)
        ids = find_vertex_steps(graph, pairs, torch.full_like(pairs, t - 1))
        places.append(torch.where(ids < 0, graph.num_vertices, ids))
        labels.append(label)
    return torch.cat(places, dim=1), torch.cat(labels)


class SequenceTrainer(AdamTrainer):
    """A trainer of one full-batch step per epoch; it lacks the computation only.

    Attributes:
        model: with its head, on the device.
        graph: the vertex-steps.
        task: what is scored.
        num_frames: 1, all snapshots at once.
        notes: sentences that a row of this trainer should carry.
    """

    num_frames = 1

    def __init__(
        self,
        workload: SequenceWorkload,
        data: SnapshotSequence,
        *,
        device: str = "cpu",
        meter: Meter | None = None,
        dtype: torch.dtype = torch.float32,
        graph: Supergraph | None = None,
    ) -> None:
        """Lay out nothing yet but the vertex-steps.

        Args:
            workload, data: of `load_sequences`.
            device: of the model.
            meter: gets phases and counters.
            dtype: float32 or float64.
            graph: `vertex_steps` of the workload, where it is known already.
        """
        self.workload = workload.check()
        self.data = checked(data, workload)
        self.device = check_device(device)
        self.dtype = dtype
        self.meter = meter if meter is not None else Meter(device=device)
        self.graph = vertex_steps(data, workload) if graph is None else graph
        self.model = sequence_model(workload).to(self.device, dtype)
        self.task = SequenceTask(data, workload, self.graph)
        self.notes: list[str] = []

    @abstractmethod
    def accumulate(self) -> float:
        """Add the gradient of the whole loss to `.grad` of all parameters; the loss."""

    @abstractmethod
    def outputs(self) -> Tensor:
        """Outputs of all vertex-steps in their order, [V, D], without history."""

    @abstractmethod
    def accuracy(self) -> float:
        """Share of right predictions on what is held out; 0 where there is nothing."""

    def step(self, frame: int = 0) -> float:
        self._check(frame)
        self.optimiser.zero_grad(set_to_none=True)
        loss = self.accumulate()
        with self.meter.phase("update"):
            self.optimiser.step()
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return loss

    def train_epoch(self) -> float:
        """One step on everything; the loss before it."""
        return self.step(0)

    def evaluate(self, frame: int = 0) -> Tensor:
        """`outputs` on the CPU."""
        self._check(frame)
        return self.outputs().detach().cpu()

    def gradients(self, frame: int = 0) -> dict[str, Tensor]:
        self._check(frame)
        self.model.zero_grad(set_to_none=True)
        self.accumulate()
        found = {
            n: (torch.zeros_like(p) if p.grad is None else p.grad).detach().cpu().clone()
            for n, p in self.model.named_parameters()
        }
        self.model.zero_grad(set_to_none=True)
        return found

    def _check(self, frame: int) -> None:
        if frame != 0:
            raise InvalidInputError(f"frame is {frame}; all snapshots are the one frame 0")
