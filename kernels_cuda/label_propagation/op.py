"""Weighted label propagation with a cap on label sizes: the chunks of DGC (section 3.3, eq. 2).

Every vertex starts with a label of its own and takes, again and again, the label that the largest
weight of its edges leads to. The paper lets all vertices go at once and says neither how ties end
nor how large a label may grow. Here (readings, with the reason):

- **Ties**: a vertex keeps its label unless another has strictly more weight; among others the
  smallest wins. Moving on a tie would let labels wander for ever.
- **Semi-synchronous**: all at once swaps labels back and forth on bipartite graphs. A sweep takes
  blocks of `block` vertices in order and inside a block `rounds` rounds, dealt by a hash of vertex,
  sweep and seed. In a round all vertices wish from the labels before it, then wishes are granted.
- **Cap**: a vertex wishes only for labels whose load before the round leaves room for it. Where not
  all who wish for a label fit, a prefix ordered by gain (weight there less weight at home, largest
  first; then by vertex) moves and the others ask again. A load never grows past the cap.
- **Integers**: weights are int32 and sums int64, so no order of adding shows in a result. Results
  are the same for every number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from dgbench.kernels_cuda._checks import check_ids, check_vector
from dgbench.kernels_cuda.build_info import extension, stream_of
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.csr.check import check_csr
from dgbench.runtime.errors import InvalidInputError

DEFAULT_BLOCK: Final = 1 << 10
"""Vertices of a block: few, so that a sweep is nearly asynchronous where neighbours have near ids
(cut 0.35 instead of 0.52 on such a graph), yet enough to share a round among threads."""

MAX_ROUNDS: Final = 64


@dataclass(frozen=True, slots=True)
class LabelRun:
    """Result of a label propagation.

    Attributes:
        labels: int32[N], in [0, N). A label is the id of the vertex that started with it.
        sweeps: sweeps that were made.
        moved: vertices that changed their label in each sweep.
        looked: vertices whose edges were read in each sweep; N each without `active_only`.
        converged: the last sweep moved fewer than the share asked for.
    """

    labels: Tensor
    sweeps: int
    moved: tuple[int, ...]
    looked: tuple[int, ...]
    converged: bool

    def chunks(self) -> tuple[Tensor, int]:
        """(int32[N], C): the labels renumbered 0 .. C - 1 in their order, and their number."""
        if self.labels.numel() == 0:
            return self.labels.clone(), 0
        used = torch.zeros_like(self.labels)
        used[self.labels.long()] = 1
        places = used.cumsum(0, dtype=torch.int32) - 1
        return places[self.labels.long()], int(used.sum())


def propagate_labels(
    csr: Csr,
    edge_weight: Tensor | None = None,
    vertex_weight: Tensor | None = None,
    *,
    cap: int,
    sweeps: int = 20,
    seed: int = 0,
    active_only: bool = False,
    threads: int | None = None,
    share: float = 0.001,
    rounds: int = 2,
    block: int = DEFAULT_BLOCK,
    start: Tensor | None = None,
    stop: Callable[[], bool] | None = None,
) -> LabelRun:
    """Group the vertices of a weighted graph into labels of bounded size.

    Args:
        csr: a square matrix; vertex r reads the labels of the columns of row r. For a graph both
            directions must be stored. Self loops do not vote, entries of one column add up, and
            order does not matter. `csr.values` is not read. On a CUDA device the labels are those
            of the CPU; there a round costs five launches and more however small it is, so pass a
            `block` of 2^16 or more, and weights and `start` on the same device.
        edge_weight: int32[nnz] >= 0 (profiled traffic, scaled), or None for 1 each.
        vertex_weight: int32[N] >= 0, a vertex's part in the size of its label, or None for 1 each.
        cap: largest sum of vertex weights of a label, at least 1. A heavier vertex stays alone.
        sweeps: sweeps at most, at least 0.
        seed: decides which round a vertex is in, 0 <= seed < 2^32.
        active_only: after the first sweep look only at vertices with a neighbour that moved since
            they were last looked at, and at those that a full label turned away while they wished.
            Faster; the result may differ, because room that others leave wakes nobody. Needs a
            symmetric pattern.
        threads: OpenMP threads, torch's number if None.
        share: stop after a sweep in which fewer than share * N vertices moved (or none).
        rounds: a power of two up to 64; 1 with `block` >= N is the synchronous form.
        block: vertices of a block, at least 1. 1 is fully asynchronous.
        start: int32[N] labels to start from, each in [0, N); None for one of its own for each
            vertex. Loads over the cap take no more but are not broken up.
        stop: asked after each sweep; True ends the run there.

    Returns:
        The labels, and what each sweep did.

    Raises:
        InvalidInputError: a malformed or rectangular matrix, arrays of another dtype or length,
            negative weights, or a number out of its range.
    """
    check_csr(csr, "csr")
    count = csr.num_rows
    if csr.num_cols != count:
        raise InvalidInputError(f"csr is {count} x {csr.num_cols}, expected a square matrix")
    device = csr.indptr.device
    _check_weight(edge_weight, "edge_weight", csr.nnz, device)
    _check_weight(vertex_weight, "vertex_weight", count, device)
    _check_numbers(cap, sweeps, seed, share, rounds, block)
    threads = torch.get_num_threads() if threads is None else threads
    if threads < 1:
        raise InvalidInputError(f"threads is {threads}, allowed are numbers from 1")
    if start is None:
        labels = torch.arange(count, dtype=torch.int32, device=device)
    else:
        _check_vector(start, "start", count, device)
        check_ids(start, "start", count)
        labels = start.clone(memory_format=torch.contiguous_format)
    loads = _loads(labels, vertex_weight, start is None)
    active = torch.ones(count, dtype=torch.uint8, device=device) if active_only else None
    sweep = _sweep_on(device, count, block)
    moved: list[int] = []
    looked: list[int] = []
    converged = count == 0
    while len(moved) < sweeps and not converged:
        change, read = sweep(
            csr.indptr,
            csr.indices,
            edge_weight,
            vertex_weight,
            labels,
            loads,
            active,
            cap,
            sweep_salt(seed, len(moved)),
            rounds,
            block,
            threads,
        )
        moved.append(change)
        looked.append(read)
        converged = change == 0 or change < share * count
        if stop is not None and stop():
            break
    return LabelRun(labels, len(moved), tuple(moved), tuple(looked), converged)


def _sweep_on(device: torch.device, count: int, block: int) -> Callable[..., tuple[int, int]]:
    """The compiled sweep of a device, with the CPU's arguments and results.

    Raises:
        UnsupportedError: no compiled operators for that device.
    """
    sweep = extension(device).label_sweep
    if device.type == "cpu":
        return sweep
    most = min(block, count)
    ids = torch.empty(2 * most, dtype=torch.int32, device=device)
    gains = torch.empty(most, dtype=torch.int64, device=device)
    contested = torch.empty(2 * most, dtype=torch.int32, device=device)
    arrivals = torch.zeros(count, dtype=torch.int64, device=device)

    def on_device(*arguments: Any) -> tuple[int, int]:
        counts = torch.zeros(3, dtype=torch.int64, device=device)
        scratch = (ids[:most], ids[most:], gains, contested, arrivals, counts)
        sweep(*arguments[:-1], *scratch, *stream_of(device))  # all but the threads
        moved, looked, _ = counts.tolist()
        return moved, looked

    return on_device


def sweep_salt(seed: int, sweep: int) -> int:
    """The 32 bits that a sweep mixes into its hashes: another deal of rounds in every sweep."""
    return (seed * 0x9E3779B1 + sweep * 0x85EBCA77 + 0x27D4EB2F) & 0xFFFFFFFF


def _loads(labels: Tensor, vertex_weight: Tensor | None, own: bool) -> Tensor:
    """int64[N]: the sum of vertex weights of each label."""
    weights = torch.ones_like(labels) if vertex_weight is None else vertex_weight
    if own:
        return weights.to(torch.int64)
    loads = torch.zeros(labels.numel(), dtype=torch.int64, device=labels.device)
    return loads.index_add_(0, labels.long(), weights.to(torch.int64))


def _check_vector(array: Tensor, name: str, length: int, device: torch.device) -> None:
    """As `check_vector` for int32, on the device of the matrix."""
    if device.type == "cpu" or not isinstance(array, Tensor):
        check_vector(array, name, torch.int32, length)
    elif array.dtype != torch.int32 or array.shape != (length,) or array.device != device:
        raise InvalidInputError(
            f"{name} is {array.dtype} {list(array.shape)} on '{array.device}', expected "
            f"torch.int32 [{length}] on '{device}' as csr"
        )


def _check_weight(weight: Tensor | None, name: str, length: int, device: torch.device) -> None:
    if weight is None:
        return
    if isinstance(weight, Tensor) and weight.is_floating_point():
        raise InvalidInputError(
            f"{name} is {weight.dtype}, expected torch.int32: integer sums do not depend on their "
            "order",
            hint="scale the weights and round them",
        )
    _check_vector(weight, name, length, device)
    if not weight.is_contiguous():
        raise InvalidInputError(f"{name} is not contiguous", hint="pass `.contiguous()`")
    if length and int(weight.min()) < 0:
        at = int(weight.argmin())
        raise InvalidInputError(
            f"{name}[{at}] is {int(weight[at])}, allowed are weights from 0",
            hint="a negative edge would have to push labels away, which propagation cannot",
        )


def _check_numbers(cap: int, sweeps: int, seed: int, share: float, rounds: int, block: int) -> None:
    ranges = (
        ("cap", cap, 1, 2**62),
        ("sweeps", sweeps, 0, 2**31),
        ("seed", seed, 0, 2**32 - 1),
        ("rounds", rounds, 1, MAX_ROUNDS),
        ("block", block, 1, 2**31 - 1),
        ("share", share, 0, 1),
    )
    for name, value, low, high in ranges:
        if not low <= value <= high:
            raise InvalidInputError(f"{name} is {value}, allowed are {low} to {high}")
    if rounds & (rounds - 1):
        raise InvalidInputError(f"rounds is {rounds}, allowed are powers of two")
