"""Random graphs that operators are raced on."""

from __future__ import annotations

import numpy as np
import torch

from dgbench.kernels_cuda.csr import Csr


class PowerLawGraphs:
    """Square matrices whose rows and columns are drawn by weight rank^-0.75, in random order."""

    def __init__(self, vertices: int, seed: int = 1) -> None:
        self.vertices = vertices
        self.draw = np.random.default_rng(seed)
        self._names = [self.draw.permutation(vertices) for _ in range(2)]
        self._bounds = np.cumsum(np.arange(1, vertices + 1) ** -0.75)

    def keys(self, count: int) -> np.ndarray:
        """int64[count], ascending: distinct keys row * vertices + column."""
        found = np.zeros(0, dtype=np.int64)
        while len(found) < count:
            drawn = self.draw.random((2, int(1.4 * count))) * self._bounds[-1]
            rows, columns = (
                names[np.searchsorted(self._bounds, ends)]
                for names, ends in zip(self._names, drawn, strict=True)
            )
            found = np.unique(np.concatenate([found, rows * self.vertices + columns]))
        return np.sort(self.draw.choice(found, count, replace=False))

    def weighted(self, keys: np.ndarray) -> Csr:
        """The matrix of these keys with random float32 values."""
        plain = csr_of(keys, self.vertices)
        values = torch.from_numpy(self.draw.random(len(keys), dtype=np.float32))
        return Csr(plain.indptr, plain.indices, self.vertices, values)

    def overlapping(self, entries: int, count: int, shared: float) -> list[Csr]:
        """Unweighted matrices of `entries` each, which have a share of their entries in common."""
        base = self.keys(entries)
        common = np.sort(self.draw.choice(base, int(shared * entries), replace=False))
        found = []
        for _ in range(count):
            fresh = np.setdiff1d(self.keys(max(entries // 4, 64)), common)
            own = self.draw.choice(fresh, entries - len(common), replace=False)
            found.append(csr_of(np.sort(np.concatenate([common, own])), self.vertices))
        return found


def csr_of(keys: np.ndarray, vertices: int) -> Csr:
    """The unweighted square matrix of ascending keys row * vertices + column."""
    counts = np.bincount(keys // vertices, minlength=vertices)
    indptr = np.concatenate([[0], counts.cumsum()]).astype(np.int64)
    indices = (keys % vertices).astype(np.int32)
    return Csr(torch.from_numpy(indptr), torch.from_numpy(indices), vertices)


def keys_of(csr: Csr) -> torch.Tensor:
    """int64[nnz]: keys row * columns + column of the entries, in their order."""
    ids = torch.arange(csr.num_rows, device=csr.indptr.device)
    rows = torch.repeat_interleave(ids, csr.indptr.diff())
    return rows * csr.num_cols + csr.indices


def on_device(csr: Csr, device: str) -> Csr:
    """The same matrix with its arrays on a torch device."""
    values = None if csr.values is None else csr.values.to(device)
    return Csr(csr.indptr.to(device), csr.indices.to(device), csr.num_cols, values)
