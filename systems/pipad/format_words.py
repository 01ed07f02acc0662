"""Words that formats of a topology take, and how much successive snapshots share (4.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from dgbench.datasets import SnapshotSequence
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.overlap import PartTopology
from dgbench.kernels_cuda.slices import coo_words, csr_words, slice_csr
from dgbench.systems.base.training import coordinates
from dgbench.systems.pipad.partitions import split

MAX_GROUPS = 24
"""Groups looked at per partition size, spread evenly; more would not change a mean in sight."""


def _zeros() -> dict[str, int]:
    return dict.fromkeys(("csr", "sliced", "coo"), 0)


@dataclass(slots=True)
class FormatCounts:
    """Sizes of all snapshots of a graph by format.

    Attributes:
        entries, slices: of all snapshots. longest_slice: entries of the longest one.
        words: by format. mismatches: snapshots whose arrays are not as long as the printed formula
            says, by format.
    """

    entries: int = 0
    slices: int = 0
    longest_slice: int = 0
    words: dict[str, int] = field(default_factory=_zeros)
    mismatches: dict[str, int] = field(default_factory=_zeros)


def count_formats(topology: Sequence[Csr]) -> FormatCounts:
    """Words of all snapshots as CSR, sliced CSR and COO, values included."""
    found = FormatCounts()
    for csr in topology:
        sliced = slice_csr(csr)
        # The printed formulas against the lengths of arrays that are really there.
        stored = {
            "csr": csr.indptr.numel() + 2 * csr.indices.numel(),
            "sliced": sliced.row_indices.numel()
            + sliced.slice_offsets.numel()
            + 2 * sliced.indices.numel(),
            "coo": sum(array.numel() for array in coordinates(csr)) + csr.nnz,
        }
        formula = {"csr": csr_words(csr), "sliced": sliced.words(), "coo": coo_words(csr.nnz)}
        for name, words in formula.items():
            found.words[name] += words
            found.mismatches[name] += int(words != stored[name])
        if sliced.num_slices:
            longest = int(sliced.slice_offsets.diff().max())
            found.longest_slice = max(found.longest_slice, longest)
        found.entries += csr.nnz
        found.slices += sliced.num_slices
    return found


def mean_change(data: SnapshotSequence) -> float:
    """Mean over adjacent snapshots of 1 - |A and B| / |A or B|."""
    changes = []
    for before, after in pairwise(data.topology):
        if before is after:
            changes.append(0.0)
            continue
        shared = PartTopology.build([before, after]).over.nnz
        union = before.nnz + after.nnz - shared
        changes.append(1 - shared / union if union else 0.0)
    return sum(changes) / max(1, len(changes))


def partition_words(data: SnapshotSequence, size: int) -> tuple[int, int]:
    """Words of partitions of `size` snapshots and of the same snapshots whole."""
    groups = [g for g in split(range(len(data)), size) if len(g) == size]
    step = max(1, len(groups) // MAX_GROUPS)
    partition = whole = 0
    for group in groups[::step]:
        csrs = [data.topology[t] for t in group]
        partition += PartTopology.build(csrs).words()
        whole += sum(slice_csr(csr).words() for csr in csrs)
    return partition, whole
