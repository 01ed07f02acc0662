"""Profile of the preparing epochs: times, bytes and memory of frames, a snapshot at a time (4.3).

Nothing here changes a parameter, and random numbers come from a generator of their own, so training
goes on as if nothing had been measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from dgbench.runtime.memory import available_memory
from dgbench.systems.pipad.analyzer import Analysis
from dgbench.systems.pipad.engine import Engine
from dgbench.systems.pipad.tuner import OPTIONS, FrameFacts

REPEATS: Final = 3


@dataclass(frozen=True, slots=True)
class ProfiledFrame:
    """One frame, aggregated one snapshot at a time.

    Attributes:
        step_s: seconds of a step.
        single_s: seconds of its aggregations, forward and backward, topology at hand.
        edges: entries that they read.
    """

    step_s: float
    single_s: float
    edges: int


def aggregation_seconds(engine: Engine, times: range, widths: tuple[int, ...]) -> float:
    """Seconds of a frame's aggregations, forward and, where a gradient is wanted, backward.

    Raw features want no gradient: they are the first width where there is no store of results.
    """
    engine.first(times)
    total = 0.0
    for place, width in enumerate(widths):
        wants = engine.store is not None or place > 0
        turn = engine.turn(times, width, wants=wants)
        found = []
        for _ in range(REPEATS + 1):  # the first one also brings the topology
            start = _now(engine.device)
            turn()
            found.append(_now(engine.device) - start)
        total += min(found[1:])
    engine.finish()
    return total


def edges_of(engine: Engine, times: range) -> int:
    """Entries of all snapshots of a frame."""
    return sum(engine.partitions.topology(t).nnz for t in times)


class Retained:
    """Counts the bytes that a forward pass keeps for its backward pass.

    On a CPU this stands for the peak of a step; on CUDA the allocator's own peak is read.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._seen: dict[int, int] = {}
        self._before = 0
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, lambda tensor: tensor)

    def __enter__(self) -> Retained:
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
            self._before = torch.cuda.memory_allocated(self._device)
        self._hooks.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._hooks.__exit__(*exception)

    @property
    def nbytes(self) -> int:
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device) - self._before
        return sum(self._seen.values())

    def _pack(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        self._seen[storage.data_ptr()] = storage.nbytes()
        return tensor


def free_bytes(device: torch.device) -> int:
    """Memory of the device that is free now."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return available_memory()


def timed_probe(probe: Callable[[], None], device: torch.device) -> tuple[float, int]:
    """Seconds of a probe that has run before, and the bytes that its first run retained."""
    with Retained(device) as retained:
        probe()
    found = []
    for _ in range(REPEATS - 1):
        start = _now(device)
        probe()
        found.append(_now(device) - start)
    return min(found), retained.nbytes


def frame_facts(
    engine: Engine,
    times: range,
    *,
    widths: tuple[int, ...],
    sample: ProfiledFrame,
    analysis: Analysis,
    sends_topology: bool,
    peak_bytes: int,
) -> FrameFacts:
    """Facts about a frame for the tuner.

    Args:
        engine: its partitions and store.
        times: the frame.
        widths: floats per vertex of each aggregation that a steady step does.
        sample: means of the profiled frames; times of aggregation scale with the entries.
        analysis: facts of all groups.
        sends_topology: whether partitions travel at all in a steady step.
        peak_bytes: of one snapshot.
    """
    edges = edges_of(engine, times)
    row = 0 if engine.store is not None else 4 * engine.sequence.features[0].numel()
    overlap, sent = {}, {}
    for size in (s for s in OPTIONS if s <= len(times)):
        groups = [times[i : i + size] for i in range(0, len(times), size)]
        whole = [g for g in groups if g in analysis.groups]
        rates = [analysis.groups[g].overlap_rate for g in whole]
        if rates:
            overlap[size] = sum(rates) / len(rates)
        if sends_topology:
            sent[size] = [
                4 * group_words(engine, analysis, group) + row * len(group) for group in groups
            ]
    return FrameFacts(
        times=times,
        widths=widths,
        single_s=sample.single_s * (edges / sample.edges if sample.edges else 1.0),
        rest_s=max(0.0, sample.step_s - sample.single_s),
        overlap=overlap,
        bytes=sent,
        peak_bytes=peak_bytes,
        nodes=engine.sequence.features.shape[1],
        edges=edges / len(times),
    )


def group_words(engine: Engine, analysis: Analysis, group: range) -> int:
    """Words of topology that a transfer of the group moves, from the analysis where it knows."""
    partitions = engine.partitions
    if not partitions.overlap:
        return sum(partitions.snapshot_words(t) for t in group)
    if group in analysis.groups:
        return analysis.groups[group].words
    if len(group) == 1:  # all of it is shared, and the exclusive part is empty
        empty = 1 if partitions.sliced else engine.sequence.features.shape[1] + 1
        return partitions.snapshot_words(group.start) + empty
    return partitions.words(group)


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
