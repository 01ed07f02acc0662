"""Recounts of what PiPAD's experiments count: sets of edges and warps one by one, slow and plain.

Nothing here calls the operators that are checked; numpy and Python's sets are enough.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.overlap import PartTopology
from dgbench.kernels_cuda.slices import SlicedCsr, slice_csr
from dgbench.kernels_cuda.variants import memory_model as model
from dgbench.lab.result_checks import ResultCheck, equal
from dgbench.systems.pipad.format_words import FormatCounts

SLICE = 32
"""Entries of a slice at most."""
ROWS = 64
"""Rows whose loads are simulated."""


def edges_of(csr: Csr) -> np.ndarray:
    """Distinct entries of a matrix as row * columns + column, int64, sorted."""
    lengths = np.diff(csr.indptr.cpu().numpy())
    rows = np.repeat(np.arange(csr.num_rows, dtype=np.int64), lengths)
    return np.unique(rows * csr.num_cols + csr.indices.cpu().numpy().astype(np.int64))


def slices_of(edges: np.ndarray, columns: int, most: int = SLICE) -> int:
    """Slices of at most `most` entries that the rows of these edges take."""
    _, lengths = np.unique(edges // columns, return_counts=True)
    return int((-(-lengths // most)).sum())


def recount_formats(topology: Sequence[Csr], found: FormatCounts) -> ResultCheck:
    """A check of entries, slices and words of snapshots as CSR, sliced CSR and COO."""
    wanted = dict.fromkeys(("entries", "slices", "csr", "sliced", "coo"), 0)
    seen: dict[int, tuple[int, int]] = {}
    for csr in topology:
        if id(csr) not in seen:
            edges = edges_of(csr)
            seen[id(csr)] = len(edges), slices_of(edges, csr.num_cols)
        entries, slices = seen[id(csr)]
        wanted["entries"] += entries
        wanted["slices"] += slices
        wanted["csr"] += 2 * entries + csr.num_rows + 1
        wanted["sliced"] += 2 * entries + 2 * slices + 1
        wanted["coo"] += 3 * entries
    own = {"entries": found.entries, "slices": found.slices, **found.words}
    return equal("counters", own, wanted, against="recount from sets of edges")


def recount_partition(csrs: Sequence[Csr], parts: PartTopology) -> list[ResultCheck]:
    """Checks of a partition: its parts as sets of edges, and their words and overlap rate."""
    sets = [edges_of(csr) for csr in csrs]
    shared = sets[0]
    for other in sets[1:]:
        shared = np.intersect1d(shared, other, assume_unique=True)
    own = [np.setdiff1d(edges, shared, assume_unique=True) for edges in sets]
    columns = csrs[0].num_cols
    words = sum(2 * len(part) + 2 * slices_of(part, columns) + 1 for part in (shared, *own))
    against = "intersection of sets of edges"
    found = [edges_of(part) for part in (parts.over, *parts.exclusive)]
    return [
        equal("parts", found, [shared, *own], against=against),
        equal("counters", {"words": parts.words()}, {"words": words}, against=against),
    ]


def recount_change(before: Csr, after: Csr, found: float) -> ResultCheck:
    """A check of 1 - |A and B| / |A or B| of two snapshots."""
    first, second = set(edges_of(before).tolist()), set(edges_of(after).tolist())
    union = len(first | second)
    wanted = 1 - len(first & second) / union if union else 0.0
    return equal("counters", round(found, 12), round(wanted, 12), against="sets of edges")


def recount_loads(csr: Csr, width: int) -> list[ResultCheck]:
    """Checks of requests and transactions over drawn rows, against a simulation of all warps."""
    rows = _some_rows(csr)
    sliced = slice_csr(rows)
    gespmm, pipad = model.gespmm_loads(rows, width), model.sliced_loads(sliced, width)
    against = "simulation warp by warp"
    return [
        equal(
            "counters",
            [gespmm.requests, gespmm.transactions, pipad.requests, pipad.transactions],
            [*_gespmm(rows, width), *_pipad(sliced, width)],
            against=against,
        )
    ]


def drawn(count: int, most: int) -> list[int]:
    """`most` of the numbers below `count`, other ones in every process, in order."""
    return sorted(random.SystemRandom().sample(range(count), min(most, count)))


def plain_aggregation(csr: Csr, x: Tensor, *, norm: bool = True) -> Tensor:
    """A-hat x, or (A + I) x without `norm`, in float64 on the CPU; float64[N, D].

    A-hat is D^-1/2 (A + I) D^-1/2 with in-degrees, loops included, as of torch-geometric's GCN.
    """
    lengths = csr.indptr.cpu().diff()
    rows = torch.repeat_interleave(torch.arange(csr.num_rows), lengths)
    x = x.cpu().double()
    scale = (lengths + 1).double().rsqrt()[:, None] if norm else torch.ones(1, 1).double()
    x = x * scale
    return scale * x.index_add(0, rows, x.index_select(0, csr.indices.cpu().long()))


class _Warp:
    """Loads of word addresses: one request each, and a transaction per distinct sector."""

    def __init__(self) -> None:
        self.requests = self.transactions = 0

    def load(self, words: Sequence[int], times: int = 1) -> None:
        if len(words):
            self.requests += times
            self.transactions += times * len({word // model.SECTOR_WORDS for word in words})

    def load_rows(self, columns: Sequence[int], width: int, lanes: int) -> None:
        """Feature rows of `width` floats, padded to sectors, at once; `lanes` floats a request."""
        if len(columns):
            self.requests += -(-width // lanes)
            self.transactions += len(columns) * -(-width // model.SECTOR_WORDS)


def _gespmm(csr: Csr, width: int) -> tuple[int, int]:
    warp, indptr = _Warp(), csr.indptr.tolist()
    tile = 32 if width < 64 else 64
    for _ in range(-(-width // tile)):
        for row in range(csr.num_rows):
            warp.load([row])
            warp.load([row + 1])
            for begin in range(indptr[row], indptr[row + 1], 32):
                warp.load(range(begin, min(begin + 32, indptr[row + 1])), times=2)
    for column in csr.indices.tolist():
        warp.load_rows([column], width, 32)
    return warp.requests, warp.transactions


def _pipad(sliced: SlicedCsr, width: int) -> tuple[int, int]:
    warp, offsets = _Warp(), sliced.slice_offsets.tolist()
    columns = sliced.indices.tolist()
    group = max(1, min(4, 32 // width))
    lanes = group * width if group > 1 else 32
    vector = 4 if width > 64 and width % 4 == 0 else 2 if width > 32 and width % 2 == 0 else 1
    for first in range(0, sliced.num_slices, group):
        slices = range(first, min(first + group, sliced.num_slices))
        warp.load(list(slices))
        warp.load([s + 1 for s in slices])
        warp.load(list(slices))
        lengths = [offsets[s + 1] - offsets[s] for s in slices]
        for start in range(0, SLICE * group, lanes):
            words = []
            for lane in range(start, min(start + lanes, SLICE * group)):
                place, step = lane % group, lane // group
                if place < len(slices) and step < lengths[place]:
                    words.append(offsets[first + place] + step)
            warp.load(words)
        for step in range(max(lengths, default=0)):
            active = [
                columns[offsets[s] + step] for s, n in zip(slices, lengths, strict=True) if step < n
            ]
            warp.load_rows(active, width, 32 * vector)
    return warp.requests, warp.transactions


def _some_rows(csr: Csr) -> Csr:
    """A block of rows, its beginning drawn."""
    first = random.SystemRandom().randrange(max(1, csr.num_rows - ROWS + 1))
    last = min(first + ROWS, csr.num_rows)
    begin, end = int(csr.indptr[first]), int(csr.indptr[last])
    return Csr(csr.indptr[first : last + 1] - begin, csr.indices[begin:end], csr.num_cols, None)
