"""Chunks to workers: Algorithm 1 of DGC (section 3.5, equation 3), as printed and corrected.

Chunks go, largest first, to the worker m with the largest

    s_m = (mean - load of m) * traffic between the chunk and those m has already

As printed three things are open or wrong, each with a switch of its own:

- the *mean* "workload" is either that of a chunk or of a worker. With the first every factor turns
  negative after a few chunks and traffic is punished from then on;
- a worker without traffic to the chunk scores 0, so an empty one wins only where all others are
  negative, and a tie of zeros is not defined. Corrected: `traffic + epsilon`, and a tie goes to the
  smallest load;
- above the mean more traffic makes a score smaller. Corrected: where no worker is below it, the
  smallest load is taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from dgbench.kernels_cuda._checks import check_vector
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.supergraph import assign_greedy
from dgbench.runtime.errors import InvalidInputError, unknown_key

Mean = Literal["worker", "chunk"]
Empty = Literal["corrected", "literal"]


@dataclass(frozen=True, slots=True, eq=False)
class Assignment:
    """Assignment of chunks to workers.

    Attributes:
        worker: int32[C] in [0, M).
        loads: float64[M], the predicted workload of each worker.
        cut: weight of the edges between chunks of different workers, each once.
    """

    worker: Tensor
    loads: Tensor
    cut: int

    @property
    def imbalance(self) -> float:
        """Largest load / mean load; 1 is even, M is all on one worker, 1 without any work."""
        mean = float(self.loads.mean())
        return float(self.loads.max()) / mean if mean > 0 else 1.0


def assign_chunks(
    workload: Tensor,
    traffic: tuple[Csr, Tensor],
    workers: int,
    *,
    mean: Mean = "worker",
    empty: Empty = "corrected",
    epsilon: float = 1.0,
) -> Assignment:
    """Assign chunks to workers; linear in C * M and the pairs of chunks with traffic.

    Args:
        workload: float64[C] >= 0, predicted or measured, in any unit.
        traffic: C x C and int64[nnz], from `chunk_traffic`.
        workers: M, at least 1.
        mean: the reading of the average: all work over M, or over C as the text could be read.
        empty: `corrected` for the second and third of the switches above, `literal` for the printed
            score, in which the first worker wins a tie.
        epsilon: added to the traffic where corrected; one unit of weight by default, so that
            traffic decides where there is any.

    Raises:
        InvalidInputError: arrays of another dtype or length, work that is negative or not finite,
            no worker, or an epsilon that is not positive.
        UnknownKeyError: another `mean` or `empty`.
    """
    for name, value, allowed in (
        ("mean", mean, ("worker", "chunk")),
        ("empty", empty, ("corrected", "literal")),
    ):
        if value not in allowed:
            raise unknown_key(name, value, allowed)
    if not 0 < epsilon < float("inf"):
        raise InvalidInputError(f"epsilon is {epsilon}, allowed are numbers above 0")
    if workers < 1:
        raise InvalidInputError(f"workers is {workers}, allowed are numbers from 1")
    check_vector(workload, "workload", torch.float64, traffic[0].num_rows)
    if workload.numel() and not bool((workload.isfinite() & (workload >= 0)).all()):
        raise InvalidInputError("workload holds a value that is negative or not finite")
    total = float(workload.sum())
    target = total / (workers if mean == "worker" else max(1, workload.numel()))
    order = torch.argsort(workload, descending=True, stable=True)
    corrected = empty == "corrected"
    worker = assign_greedy(
        order, workload, traffic, workers, target, epsilon if corrected else 0.0, corrected
    )
    return assignment_of(worker, workload, traffic, workers)


def assignment_of(
    worker: Tensor, workload: Tensor, traffic: tuple[Csr, Tensor], workers: int
) -> Assignment:
    """Loads and cut of chunks whose workers, int32[C] in [0, M), are known."""
    loads = torch.zeros(workers, dtype=torch.float64).index_add_(0, worker.long(), workload)
    csr, weight = traffic
    rows = torch.repeat_interleave(worker, csr.indptr.diff(), output_size=csr.nnz)
    apart = rows != worker[csr.indices.long()]
    return Assignment(worker, loads, int(weight[apart].sum()) // 2)
