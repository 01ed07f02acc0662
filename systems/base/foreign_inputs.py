"""Inputs of a foreign contender: what a task of each kind gives it, as arrays by name.

The messages know frames and arrays only. A frame is a range: of snapshots, of a batch's events, or
of a whole timeline's steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy
import torch
from torch import nn

from dgbench.systems.base import data as frames_data
from dgbench.systems.base.stream import StreamWorkload, batches, load_stream, negatives
from dgbench.systems.base.timeline import (
    TimelineTask,
    TimelineWorkload,
    load_timeline,
    timeline_model,
)
from dgbench.systems.base.training import FrameTask, model_for
from dgbench.systems.base.workload import Workload

if TYPE_CHECKING:
    from dgbench.datasets import SnapshotSequence
    from dgbench.systems.base.stream import StreamData

Arrays = dict[str, numpy.ndarray]


@dataclass(frozen=True, slots=True, eq=False)
class ForeignInput:
    """A task as a contender gets it.

    Attributes:
        arrays: by name.
        frames: first and behind the last of what each frame reads.
        rows: of the output of each frame.
        model: with the first parameters.
    """

    arrays: Arrays
    frames: Sequence[tuple[int, int]]
    rows: Sequence[int]
    model: nn.Module


@dataclass(frozen=True, slots=True)
class ForeignKind:
    """A kind of task that contenders can be given.

    Attributes:
        name: as contenders are told it.
        load: the data of a workload.
        inputs: of a workload and its data.
        unsupported: reasons why a workload cannot be given to a contender.
    """

    name: str
    load: Callable[[Any], Any]
    inputs: Callable[[Any, Any], ForeignInput]
    unsupported: Callable[[Any], list[str]]


def kind_of(workload: Any) -> ForeignKind | None:
    """Kind of a workload, or None where contenders cannot be given it."""
    return next((kind for of, kind in KINDS.items() if isinstance(workload, of)), None)


def parameters_of(model: nn.Module) -> Arrays:
    """First parameters by name."""
    return {name: p.detach().numpy() for name, p in model.named_parameters()}


def _snapshots(data: SnapshotSequence) -> Arrays:
    """Features and rows of all snapshots."""
    csrs = [data.topology[t] for t in range(len(data))]
    found = {
        "features": torch.as_tensor(data.features).numpy(),
        "indptr": torch.stack([csr.indptr for csr in csrs]).numpy(),
        "indices": torch.cat([csr.indices for csr in csrs]).numpy(),
        "offsets": numpy.cumsum([0, *(csr.nnz for csr in csrs)]),
    }
    if any(csr.values is not None for csr in csrs):
        ones = (torch.ones(csr.nnz) if csr.values is None else csr.values for csr in csrs)
        found["values"] = torch.cat(list(ones)).numpy()
    return found


def _frame_inputs(workload: Workload, data: SnapshotSequence) -> ForeignInput:
    task = FrameTask(data, workload, device=torch.device("cpu"))
    arrays = {**_snapshots(data), "targets": torch.as_tensor(data.targets).numpy()}
    times = [task.times(frame) for frame in range(task.num_frames)]
    frames = [(one.start, one.stop) for one in times]
    return ForeignInput(arrays, frames, [data.num_nodes] * len(frames), model_for(workload))


def _timeline_inputs(workload: TimelineWorkload, data: SnapshotSequence) -> ForeignInput:
    task = TimelineTask(data, workload)
    arrays = _snapshots(data)
    if workload.task == "link":
        pairs, labels = zip(*(task.pairs(t) for t in range(task.steps)), strict=True)
        arrays["pairs"] = torch.cat(pairs, dim=1).numpy()
        arrays["labels"] = torch.cat(labels).numpy()
        arrays["pair_offsets"] = numpy.cumsum([0, *(len(one) for one in labels)])
    else:
        targets = [task.target(t) for t in range(task.steps)]
        arrays["targets"] = torch.stack(targets).numpy()
    return ForeignInput(arrays, [(0, task.steps)], [data.num_nodes], timeline_model(workload))


def _stream_inputs(workload: StreamWorkload, data: StreamData) -> ForeignInput:
    from dgbench.models.ctdg import build_stream_model

    events = data.events
    arrays = {
        "src": events.src.numpy(),
        "dst": events.dst.numpy(),
        "t": events.t.numpy(),
        "negatives": negatives(workload, data, 0, len(events)).numpy(),
    }
    for name in ("node_feat", "edge_feat"):
        if (values := getattr(data, name)) is not None:
            arrays[name] = values.numpy()
    parts = batches(workload, torch.arange(len(events)), events.t)
    frames = [(int(part[0]), int(part[-1]) + 1) for part in parts]
    rows = [3 * (last - first) for first, last in frames]
    return ForeignInput(arrays, frames, rows, build_stream_model(workload))


def _no_frames(workload: Workload) -> list[str]:
    if workload.task == "node":
        return []
    return [f"foreign contenders train the task 'node' on frames, not '{workload.task}'"]


def _no_stream(workload: StreamWorkload) -> list[str]:
    reasons = []
    if workload.model == "tgn":
        reasons.append("'tgn' keeps memories, which no foreign contender can be compared with")
    if workload.sampling != "recent" or workload.dropout or workload.chunks != 1:
        reasons.append(
            "foreign contenders draw nothing: sampling 'recent', dropout 0 and chunks 1 are needed"
        )
    return reasons


KINDS: Final[Mapping[type, ForeignKind]] = {
    Workload: ForeignKind("frames", frames_data.load, _frame_inputs, _no_frames),
    TimelineWorkload: ForeignKind("timeline", load_timeline, _timeline_inputs, lambda _: []),
    StreamWorkload: ForeignKind("stream", load_stream, _stream_inputs, _no_stream),
}
"""Kinds of tasks by the class of their workloads."""
