"""Alpha and beta from measurements, and how far the model is off."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dgbench.runtime.collectives import Communicator
from dgbench.runtime.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class MeasuredExchange:
    """One measured exchange, seen from its busiest link.

    Attributes:
        messages, nbytes: what passed through it. seconds: how long the exchange took.
    """

    messages: float
    nbytes: float
    seconds: float


@dataclass(frozen=True, slots=True)
class AlphaBeta:
    """A fitted link.

    Attributes:
        alpha_s: seconds per message. bandwidth: bytes per second (infinite: bytes cost nothing).
        error: largest relative error with which a point is predicted by a fit to the others; with
            two points, where none can be left out, of the fit itself.
        typical: median of the relative errors of the fit. points: how many.
    """

    alpha_s: float
    bandwidth: float
    error: float
    typical: float
    points: int

    def time(self, messages: float, nbytes: float) -> float:
        """Seconds that the model gives for so much traffic."""
        return messages * self.alpha_s + nbytes / self.bandwidth


def fit(points: Sequence[MeasuredExchange]) -> AlphaBeta:
    """The alpha and beta, neither negative, with the least squares of relative errors.

    Relative, because points span orders of magnitude and a small message counts as much as a
    large one.

    Raises:
        InvalidInputError: fewer than two points, points that do not tell messages from bytes, or
            numbers out of range.
    """
    table = np.array([(p.messages, p.nbytes, p.seconds) for p in points], dtype=np.float64)
    if len(points) < 2:
        raise InvalidInputError(f"'points' has {len(points)} points, needed: at least 2")
    if not np.all(np.isfinite(table)) or np.any(table < 0) or np.any(table[:, 2] == 0):
        raise InvalidInputError(
            "'points' has entries that are negative, not finite, or last no time"
        )
    if _collinear(table):
        raise InvalidInputError(
            "'points' all have one number of bytes per message",
            hint="measure small and large exchanges",
        )
    alpha, beta = _solve(table)
    errors = np.abs(table[:, :2] @ (alpha, beta) - table[:, 2]) / table[:, 2]
    error = float(errors.max())
    if len(points) > 2:
        out = []
        for i in range(len(points)):
            rest = np.delete(table, i, axis=0)
            if not _collinear(rest):
                out.append(abs(table[i, :2] @ _solve(rest) - table[i, 2]) / table[i, 2])
        error = max([error, *map(float, out)])
    return AlphaBeta(
        alpha_s=float(alpha),
        bandwidth=float(1 / beta) if beta > 0 else float("inf"),
        error=error,
        typical=float(np.median(errors)),
        points=len(points),
    )


def measure_exchange(
    comm: Communicator, sizes: Sequence[int], *, repeats: int = 5
) -> list[MeasuredExchange]:
    """Time all-to-alls in equal parts between the ranks of one host; all ranks must call it.

    Args:
        sizes: bytes from each rank to each other rank.
        repeats: exchanges of each size; the median of their times counts, of the slowest rank.

    Returns:
        A point per size, with the messages and bytes of all ranks together.

    Raises:
        InvalidInputError: one rank alone, or a size or number out of range.
    """
    import torch

    if comm.size < 2 or repeats < 1 or any(n < 1 for n in sizes):
        raise InvalidInputError(
            f"{comm.size} ranks, sizes {list(sizes)[:8]}, {repeats} repeats; needed: at least 2 "
            "ranks, 1 byte, 1 repeat"
        )
    points = []
    pairs = comm.size * (comm.size - 1)
    for nbytes in sizes:
        x = torch.zeros((comm.size, nbytes), dtype=torch.uint8, device=comm.device)
        ones = [1] * comm.size
        comm.all_to_all(x, ones, ones)
        seconds = []
        for _ in range(repeats):
            comm.barrier()
            start = time.perf_counter()
            comm.all_to_all(x, ones, ones)
            if x.is_cuda:
                torch.cuda.synchronize()
            seconds.append(time.perf_counter() - start)
        slowest = torch.tensor([statistics.median(seconds)], dtype=torch.float64)
        worst = comm.all_reduce(slowest.to(comm.device), "max").item()
        points.append(MeasuredExchange(pairs, pairs * nbytes, worst))
    return points


def _solve(table: np.ndarray) -> tuple[float, float]:
    from scipy.optimize import nnls

    rows = table[:, :2] / table[:, 2:]
    scale = rows.max(axis=0, initial=0.0)
    scale[scale == 0] = 1.0
    found, _ = nnls(rows / scale, np.ones(len(rows)))
    alpha, beta = found / scale
    return float(alpha), float(beta)


def _collinear(table: np.ndarray) -> bool:
    return np.linalg.matrix_rank(table[:, :2] / np.maximum(table[:, :2].max(axis=0), 1e-300)) < 2
