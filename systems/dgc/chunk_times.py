"""Measured time of a chunk: its structure encoder and its time encoder, apart (DGC, section 3.4).

A chunk is run as on a worker without other chunks: the model's rounds over its rows and the rows
that it needs of others, then its sequences packed into rows, each forward and backward. Loss and
optimiser belong to no chunk and are left out.

On a CPU the clock is processor time of the process, which does not run while others have the core;
what they do to caches and memory remains in the numbers.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from dgbench.kernels_cuda.csr import Csr
from dgbench.models import build_model
from dgbench.models.sequence import SequenceModel
from dgbench.runtime.errors import InvalidInputError
from dgbench.runtime.threads import one_thread
from dgbench.systems.dgc.neighbours import MatrixNeighbours
from dgbench.systems.dgc.packing import PackedRows, pack_sequences
from dgbench.systems.dgc.supergraph import ChunkStatistics
from dgbench.systems.dgc.volumes import Shape

ENCODERS: Final = ("structure", "time")
MODELS: Final = ("tgcn_2layer", "dysat", "mpnn_lstm_bare")
MIN_REPEATS, MAX_REPEATS = 3, 9
"""Measurements of one chunk: more of a short one, whose clock is coarser."""
AIM_S = 4e-3
"""Seconds that the measurements of one encoder of one chunk should last, warm-up aside."""
PASSES = 2

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True, eq=False)
class LocalChunk:
    """A chunk as one worker sees it: R vertex-steps, sequence after sequence, and H of others.

    Attributes:
        csr: R x (R + H), entries of A-hat without loops; columns below R are the chunk's own.
        loop: float32[R], the weight of each vertex-step in its own sum.
        lengths: int64[n], steps of each sequence; they add up to R.
        source: where it comes from, for reports: a dataset's name, or `random`.
        key: tells chunks of one source apart; two with equal rows have the same.
    """

    csr: Csr
    loop: Tensor
    lengths: Tensor
    source: str = "random"
    key: int = 0

    @property
    def rows(self) -> int:
        """R."""
        return self.csr.num_rows


@dataclass(frozen=True, slots=True)
class _SequenceDeviceRows:
    """`models.sequence.SequenceRows` where the model is."""

    begins: Tensor
    sequence: Tensor
    position: Tensor


def statistics_of(chunks: Sequence[LocalChunk]) -> ChunkStatistics:
    """The sizes of chunks, as `chunk_statistics` gives them for chunks of a graph."""

    def numbers(values: list[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64)

    return ChunkStatistics(
        numbers([chunk.rows for chunk in chunks]),
        numbers([chunk.csr.nnz for chunk in chunks]),
        numbers([_inner_pairs(chunk.csr) for chunk in chunks]),
        numbers([chunk.lengths.numel() for chunk in chunks]),
        numbers([int(chunk.lengths.max()) if chunk.lengths.numel() else 0 for chunk in chunks]),
    )


def _inner_pairs(csr: Csr) -> int:
    """Pairs of rows with an entry in either direction."""
    row = torch.repeat_interleave(torch.arange(csr.num_rows), csr.indptr.diff())
    column = csr.indices.long()
    inner = column < csr.num_rows
    low = torch.minimum(row[inner], column[inner])
    return (low * csr.num_rows + torch.maximum(row[inner], column[inner])).unique().numel()


def model_named(name: str, feature_dim: int, hidden_dim: int) -> SequenceModel:
    """One of the three models of DGC with fixed parameters; its head is not used here."""
    return build_model(model=name, feature_dim=feature_dim, hidden_dim=hidden_dim, seed=1)


def model_of(shape: Shape) -> str:
    """Name of the model (of three) that a shape belongs to.

    Raises:
        InvalidInputError: none has such states.
    """
    names = {0: "dysat", 1: "tgcn_2layer", 4: "mpnn_lstm_bare"}
    states = len(shape.state_dims)
    if states not in names:
        raise InvalidInputError(
            f"shape has {states} states, allowed are those of {', '.join(MODELS)}: 1, 0 and 4"
        )
    return names[states]


def pad_sequences(lengths: Tensor) -> PackedRows:
    """Each sequence in a row of its own, as long as the longest."""
    count = lengths.numel()
    longest = int(lengths.max()) if count else 0
    return PackedRows(lengths, torch.arange(count), torch.zeros_like(lengths), count, longest)


@dataclass(frozen=True, slots=True, eq=False)
class ChunkPass:
    """One pass of an encoder over one chunk, forward and backward.

    Attributes:
        run: does it and returns the output; gradients of parameters stay in the model.
        x: input of the chunk's vertex-steps.
        others: what vertex-steps of others show, by round of the structure encoder.
        grad: gradient of the output.
    """

    run: Callable[[], Tensor]
    x: Tensor
    others: tuple[Tensor, ...]
    grad: Tensor


class ChunkTimer:
    """Measures chunks of one model on one device.

    Args:
        model: whose parts are run; its parameters are moved to `device`.
        device: `cpu` or `cuda`.
        clock: seconds; None takes processor time on a CPU and elapsed time on a GPU.
        least, most, aim_s: repeats of one encoder: as many as fill `aim_s`, inside these bounds.
        packed: sequences packed into rows; False pads each to the longest of the chunk.
    """

    def __init__(
        self,
        model: SequenceModel,
        *,
        device: str = "cpu",
        clock: Clock | None = None,
        least: int = MIN_REPEATS,
        most: int = MAX_REPEATS,
        aim_s: float = AIM_S,
        packed: bool = True,
    ) -> None:
        if not 1 <= least <= most:
            raise InvalidInputError(
                f"least and most are {least} and {most}, expected 1 <= least <= most"
            )
        self.device = torch.device(device)
        self.model = model.to(self.device)
        self.cuda = self.device.type == "cuda"
        self._clock = clock or (time.perf_counter if self.cuda else time.process_time)
        self._least, self._most, self._aim, self._packed = least, most, aim_s, packed

    def measure(
        self,
        chunks: Sequence[LocalChunk],
        *,
        passes: int = PASSES,
        budget_s: float = math.inf,
        told: Callable[[int], None] | None = None,
    ) -> Tensor:
        """Seconds of every chunk: float64[n, 2], structure encoder and time encoder.

        All chunks are measured in one pass after the other, so that the passes of a chunk lie apart
        in time; the smallest of them counts, since disturbance only ever adds.

        Args:
            chunks: to measure.
            passes: at least 1.
            budget_s: seconds, on a CPU of processor time, after which the first pass ends; n is
                what it came to, and at least 2 of those there are.
            told: called with the number of chunks done in a pass.
        """
        taken: list[tuple[float, float]] = []
        spent = time.monotonic if self.cuda else time.process_time
        start = spent()
        for chunk in chunks:
            if len(taken) >= 2 and spent() - start > budget_s:
                break
            taken.append(self.both(chunk))
            if told is not None:
                told(len(taken))
        found = torch.tensor(taken, dtype=torch.float64).view(-1, len(ENCODERS))
        for _ in range(passes - 1):
            again = [self.both(chunk) for chunk in chunks[: len(taken)]]
            found = torch.minimum(found, torch.tensor(again, dtype=torch.float64).view_as(found))
        return found

    def both(self, chunk: LocalChunk) -> tuple[float, float]:
        """(structure, time) of one pass."""
        return self.once(chunk, "structure"), self.once(chunk, "time")

    def once(self, chunk: LocalChunk, encoder: str) -> float:
        """Typical seconds of `structure` or `time`: the lower quartile of a few in a row."""
        job = self.job(chunk, encoder)
        with one_thread():
            job()  # makes what the operators keep of a matrix, such as its transpose
            taken = [self._timed(job)]
            wanted = self._aim / taken[0] if taken[0] > 0 else self._most
            count = int(min(self._most, max(self._least, wanted)))
            taken += [self._timed(job) for _ in range(count - 1)]
        return sorted(taken)[(count - 1) // 4]

    def job(self, chunk: LocalChunk, encoder: str) -> Callable[[], Tensor]:
        """One pass of an encoder, forward and backward, to be called any number of times."""
        return self.prepared(chunk, encoder).run

    def prepared(self, chunk: LocalChunk, encoder: str) -> ChunkPass:
        """One pass of an encoder with its inputs."""
        if encoder not in ENCODERS:
            raise InvalidInputError(f"encoder is '{encoder}', allowed: {', '.join(ENCODERS)}")
        return self._structure(chunk) if encoder == "structure" else self._time(chunk)

    def _timed(self, job: Callable[[], Tensor]) -> float:
        if self.cuda:
            torch.cuda.synchronize(self.device)
        start = self._clock()
        job()
        if self.cuda:
            torch.cuda.synchronize(self.device)
        return self._clock() - start

    def _structure(self, chunk: LocalChunk) -> ChunkPass:
        model, device, own = self.model, self.device, chunk.rows
        csr = Csr(*(t.to(device) for t in (chunk.csr.indptr, chunk.csr.indices)),
                  chunk.csr.num_cols, chunk.csr.values.to(device))  # fmt: skip
        neighbours = MatrixNeighbours(csr, chunk.loop.to(device))
        halo = csr.num_cols - own
        x = torch.rand(own, model.feature_dim, device=device)
        remote = [torch.rand(halo, width, device=device) for width in model.round_dims]
        grad = torch.rand(own, model.spatial_dim, device=device)

        def run() -> Tensor:
            self._forget()
            out = x
            for k, sent in enumerate(remote):
                shown = model.show(k, out)
                # What others sent takes a gradient back wherever one is due for what is shown.
                there = sent.detach().requires_grad_(shown.requires_grad)
                shown = torch.cat([shown, there]) if halo else shown
                out = model.receive(k, neighbours, shown)
            torch.autograd.backward(out, grad)
            return out

        return ChunkPass(run, x, tuple(remote), grad)

    def _time(self, chunk: LocalChunk) -> ChunkPass:
        model, device = self.model, self.device
        packed = (pack_sequences if self._packed else pad_sequences)(chunk.lengths)
        rows = _SequenceDeviceRows(
            *(t.to(device) for t in (packed.begins, packed.sequence, packed.position))
        )
        place = packed.place.to(device)
        size = packed.row_length, packed.num_rows
        x = torch.rand(chunk.rows, model.spatial_dim, device=device)
        grad = torch.rand(chunk.rows, model.output_dim, device=device)

        def run() -> Tensor:
            self._forget()
            values = x.detach().requires_grad_()
            table = values.new_zeros(size[0] * size[1], values.shape[1])
            table = table.index_copy(0, place, values).view(*size, values.shape[1])
            made, _ = model.temporal_fused(table, rows)
            out = made.flatten(0, 1).index_select(0, place)
            torch.autograd.backward(out, grad)
            return out

        return ChunkPass(run, x, (), grad)

    def _forget(self) -> None:
        for parameter in self.model.parameters():
            parameter.grad = None
