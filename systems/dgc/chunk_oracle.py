"""Float64 oracle of timed chunks: both encoders of one chunk by torch's own operators."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from dgbench.lab.result_checks import ResultCheck
from dgbench.models.attention import plain_attend_rows
from dgbench.models.sequence import CONTINUES, FROM_ZERO
from dgbench.systems.dgc.chunk_times import ChunkPass, ChunkTimer, LocalChunk
from dgbench.systems.dgc.sequence_oracle import close_to_exact


def check_chunk(timer: ChunkTimer, chunk: LocalChunk, encoder: str) -> list[ResultCheck]:
    """Checks of the outputs and gradients of what a timer times.

    Args:
        timer: as it is; what it keeps stays.
        chunk: to run.
        encoder: `structure` or `time`.
    """
    work = timer.prepared(chunk, encoder)
    work.run()  # the second pass is of the kind that is timed
    out = work.run()
    found = {"outputs": {"": out.detach().cpu()}, "gradients": _gradients(timer.model)}
    wanted = _exact(timer, chunk, work, encoder)
    part = f"{encoder} encoder, {chunk.rows} vertex-steps of {chunk.source}"
    return [
        close_to_exact(
            of, own, wanted[of], lambda of=of: _exact(timer, chunk, work, encoder)[of], part=part
        )
        for of, own in found.items()
        if wanted[of]
    ]


def _exact(
    timer: ChunkTimer, chunk: LocalChunk, work: ChunkPass, encoder: str
) -> dict[str, dict[str, Tensor]]:
    model = copy.deepcopy(timer.model).to("cpu", torch.float64)
    model.zero_grad(set_to_none=True)
    x, *others, grad = (t.detach().cpu().double() for t in (work.x, *work.others, work.grad))
    if encoder == "structure":
        neighbours = _PlainNeighbours(chunk)
        out = x
        for k, there in enumerate(others):
            out = model.receive(k, neighbours, torch.cat([model.show(k, out), there]))
    else:
        rows = _PaddedSequences(chunk.lengths)
        table = x.new_zeros(*rows.sequence.shape, x.shape[1])
        table[rows.step, rows.row] = x
        out = model.temporal(table, rows)[0][rows.step, rows.row]
    if out.requires_grad:
        torch.autograd.backward(out, grad)
    return {"outputs": {"": out.detach()}, "gradients": _gradients(model)}


def _gradients(model: torch.nn.Module) -> dict[str, Tensor]:
    return {n: p.grad.cpu() for n, p in model.named_parameters() if p.grad is not None}


class _PlainNeighbours:
    """A chunk's rows as `models.sequence.Neighbours`, entry by entry in float64."""

    def __init__(self, chunk: LocalChunk) -> None:
        self.rows = chunk.rows
        self._indptr, self._source = chunk.csr.indptr, chunk.csr.indices.long()
        self._target = torch.repeat_interleave(torch.arange(self.rows), self._indptr.diff())
        self._value, self._loop = chunk.csr.values.double(), chunk.loop.double()

    def propagate(self, shown: Tensor) -> Tensor:
        arriving = shown.index_select(0, self._source) * self._value[:, None]
        return (shown[: self.rows] * self._loop[:, None]).index_add(0, self._target, arriving)

    def attend(self, values: Tensor, source: Tensor, target: Tensor, slope: float) -> Tensor:
        return plain_attend_rows(self._indptr, self._source, values, source, target, slope)


class _PaddedSequences:
    """A row for each sequence, as long as the longest (`models.sequence.SequenceRows`).

    Attributes:
        row, step: int64[R], where each vertex-step stands.
    """

    def __init__(self, lengths: Tensor) -> None:
        sizes = lengths.tolist()
        shape = max(sizes, default=0), len(sizes)
        self.sequence = torch.full(shape, -1)
        self.begins = torch.full(shape, FROM_ZERO, dtype=torch.int32)
        self.position = torch.zeros(shape, dtype=torch.int64)
        for number, size in enumerate(sizes):
            self.sequence[:size, number] = number
            self.begins[1:size, number] = CONTINUES
            self.position[:size, number] = torch.arange(size)
        places = [(number, step) for number, size in enumerate(sizes) for step in range(size)]
        self.row, self.step = torch.tensor(places, dtype=torch.int64).view(-1, 2).unbind(1)
