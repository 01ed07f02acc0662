"""Graph difference: a snapshot sent as what changed since the one before it (ESDG, section 3.2).

A coordinate list takes two indices and a value per entry. Where the snapshot before lies on the
device, the indices of the entries that went, those of the entries that came and all values are
enough. Both sides keep entries in canonical order (rows ascending, columns ascending in a row), so
the order of the values needs no word. Bytes for n entries, a added, r removed:

    index    plain    difference
    int64    20 n     16 (a + r) + 4 n
    int32    12 n      8 (a + r) + 4 n

and without values, where the device can form them itself from degrees, 4 n less each. With
d = (a + r) / n the gain with int64 is 20 / (4 + 16 d), at most 5; above d = 1 the difference is the
larger one and the snapshot goes plain.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from dgbench.kernels_cuda._dispatch import call
from dgbench.kernels_cuda.build_info import extension
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.csr.check import check_csr, check_layout
from dgbench.runtime.errors import InvalidInputError, UnsupportedError, unknown_key

Index = Literal["int64", "int32"]
INDEX_TYPES = {"int64": torch.int64, "int32": torch.int32}
VALUE_BYTES = 4


@dataclass(frozen=True, slots=True)
class Difference:
    """One snapshot on its way to a device: changes against the snapshot before it, and values.

    Attributes:
        removed: int64 or int32 [2, r], rows and columns of entries that only the previous snapshot
            holds, in canonical order.
        added: the same type, [2, a]: entries that only this snapshot holds. All of them where
            `plain`.
        values: float32 [n] in canonical order, or None where they are not sent.
        nnz: n, entries of this snapshot.
        num_rows, num_cols: its shape.
        plain: no previous snapshot is needed; `removed` is empty.
    """

    removed: Tensor
    added: Tensor
    values: Tensor | None
    nnz: int
    num_rows: int
    num_cols: int
    plain: bool

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Tensors to transfer: removed, added and, where sent, values. All are contiguous."""
        parts = (self.removed, self.added)
        return parts if self.values is None else (*parts, self.values)

    def with_tensors(self, tensors: Sequence[Tensor]) -> Difference:
        """The same difference over arrays that arrived elsewhere, in the order of `tensors`.

        Raises:
            InvalidInputError: another number of arrays, or another shape or dtype.
        """
        sent = self.tensors
        if [(t.shape, t.dtype) for t in tensors] != [(t.shape, t.dtype) for t in sent]:
            raise InvalidInputError(
                f"tensors have {[(tuple(t.shape), str(t.dtype)) for t in tensors]}, expected "
                f"{[(tuple(t.shape), str(t.dtype)) for t in sent]}"
            )
        removed, added, *values = tensors
        return dataclasses.replace(
            self, removed=removed, added=added, values=values[0] if values else None
        )

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays; equal to `difference_bytes`, or to `plain_bytes` where plain."""
        return sum(t.numel() * t.element_size() for t in self.tensors)


def plain_bytes(nnz: int, index: Index = "int64", values: bool = True) -> int:
    """Bytes of a snapshot as coordinates: 20 n with int64 indices, 12 n with int32; 4 n is values.

    Raises UnknownKeyError for another `index`.
    """
    return nnz * (2 * _dtype(index).itemsize + VALUE_BYTES * values)


def difference_bytes(
    added: int, removed: int, nnz: int, index: Index = "int64", values: bool = True
) -> int:
    """Bytes of a difference: 16 (a + r) + 4 n with int64 indices, 8 (a + r) + 4 n with int32.

    Raises UnknownKeyError for another `index`.
    """
    return (added + removed) * 2 * _dtype(index).itemsize + nnz * VALUE_BYTES * values


def encode(
    previous: Csr | None,
    current: Csr,
    *,
    index: Index = "int64",
    values: bool = True,
    fallback: bool = True,
    threads: int | None = None,
) -> Difference:
    """Encode `current` as its difference from `previous`.

    One pass over both matrices; the result does not depend on the number of threads. Self loops are
    entries like others: pass matrices from `with_self_loops` to ship them (they are common to all
    snapshots, so they cost their values only), or matrices without to let the device add them.

    Args:
        previous: the snapshot on the device, or None to send everything.
        current: the snapshot to send, of the same shape; both on the CPU with strictly ascending
            columns. Each is checked completely once and remembered while its arrays live.
        index: type of the indices sent; the paper's gain needs `int64`.
        values: send one float32 per entry (1 where `current` has none). Otherwise no values travel
            and what is rebuilt has none: the device forms scales from its degrees.
        fallback: send plain where a difference would be larger.
        threads: OpenMP threads, torch's number if None.

    Raises:
        InvalidInputError: a malformed matrix, disordered or repeated columns, different shapes, or
            `values=False` for a matrix whose own values would be lost.
        UnknownKeyError: another `index`.
        UnsupportedError: matrices that are not on the CPU.
    """
    dtype = _dtype(index)
    threads = torch.get_num_threads() if threads is None else threads
    _check_once(current, "current")
    if previous is not None:
        _check_once(previous, "previous")
        _check_shapes(previous, current)
    if not values and current.values is not None:
        raise InvalidInputError(
            "values=False would lose current.values",
            hint="send them, or pass the matrix without values where degrees give them back",
        )
    weights = _values(current) if values else None
    shape = current.nnz, current.num_rows, current.num_cols
    if previous is not None and _same_entries(previous, current):
        none = torch.empty(2, 0, dtype=dtype)
        return Difference(none, none.clone(), weights, *shape, plain=False)
    if previous is not None:
        merge = extension(current.indptr.device).DifferenceMerge(
            *_arrays(previous, current), threads
        )
        gone, come = merge.counts()
        if not fallback or gone + come <= current.nnz:  # as bytes: d above 1 loses, either index
            removed = torch.empty(2, gone, dtype=dtype)
            added = torch.empty(2, come, dtype=dtype)
            merge.fill(removed, added)
            return Difference(removed, added, weights, *shape, plain=False)
    pairs = torch.empty(2, current.nnz, dtype=dtype)
    extension(current.indptr.device).matrix_pairs(current.indptr, current.indices, pairs, threads)
    return Difference(torch.empty(2, 0, dtype=dtype), pairs, weights, *shape, plain=True)


def encode_sequence(
    snapshots: Sequence[Csr],
    *,
    restarts: Collection[int] = (0,),
    index: Index = "int64",
    values: bool = True,
    self_loops: bool = False,
    fallback: bool = True,
) -> list[Difference]:
    """Every snapshot of a sequence against the one before it, snapshots shared among threads.

    Args:
        snapshots: T matrices of one shape, such as `SnapshotSequence.topology`.
        restarts: steps that are sent plain: the first of every block that a rank loads (ESDG sends
            the first snapshot of a block as it is). Step 0 always is.
        index, values, fallback: as in `encode`.
        self_loops: ship A + I instead of A, square matrices only.

    Returns:
        T differences.

    Raises:
        As `encode` does; a message names the step.
    """
    shipped = list(snapshots)
    if self_loops:
        # By identity, so that a topology that does not change is widened once.
        wider = {id(csr): with_self_loops(csr) for csr in {id(c): c for c in shipped}.values()}
        shipped = [wider[id(csr)] for csr in shipped]

    def one(t: int) -> Difference:
        previous = None if t == 0 or t in restarts else shipped[t - 1]
        try:
            return encode(
                previous, shipped[t], index=index, values=values, fallback=fallback, threads=1
            )
        except InvalidInputError as error:
            raise InvalidInputError(f"snapshots[{t}]: {error}") from error

    workers = max(1, min(torch.get_num_threads(), len(snapshots)))
    if workers == 1:
        return [one(t) for t in range(len(snapshots))]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(one, range(len(snapshots))))


def count_changes(previous: Csr, current: Csr) -> tuple[int, int]:
    """(removed, added) between two snapshots without writing them down, for sweeps over windows.

    Raises as `encode` does.
    """
    _check_once(current, "current")
    _check_once(previous, "previous")
    _check_shapes(previous, current)
    return extension(current.indptr.device).count_changes(
        *_arrays(previous, current), torch.get_num_threads()
    )


def rebuild(previous: Csr | None, difference: Difference, *, check: bool | None = None) -> Csr:
    """The snapshot that `difference` was made of, on the device of its arrays.

    The place of every entry follows from two ranks in the sorted changes, so nothing is scanned and
    no count is read back: on CUDA two launches on the current stream, which a graph can capture.
    The values are those of the difference, not copied.

    Args:
        previous: the snapshot before, on the same device; not read (and may be None) where the
            difference is plain.
        difference: from `encode`, its arrays moved to that device.
        check: verify that every removed entry is there, no added one is, and all are in order.
            On CUDA this waits for the device, so the default is True on the CPU only; unchecked, a
            difference that does not belong to `previous` gives wrong entries but stays in bounds.

    Raises:
        InvalidInputError: arrays of another device, shape or type, no `previous` where one is
            needed, or (checked) a difference that does not belong to `previous`.
        UnsupportedError: a device without compiled operators.
    """
    removed, added = difference.removed, difference.added
    device = added.device
    check = device.type == "cpu" if check is None else check
    _check_pairs(difference)
    old = None if difference.plain else previous
    if old is None and not difference.plain:
        raise InvalidInputError("previous is None, but the difference is not plain")
    indices = torch.empty(0, dtype=torch.int32, device=device)
    if old is not None:
        _check_base(old, difference, device)
        indices = old.indices
    out_indptr = torch.empty(difference.num_rows + 1, dtype=torch.int64, device=device)
    out_indices = torch.empty(difference.nnz, dtype=torch.int32, device=device)
    found = torch.empty(3, dtype=torch.int64, device=device)
    scratch: tuple[Tensor, ...] = ()
    if device.type == "cuda":
        counts = [removed.shape[1], added.shape[1]]
        scratch = torch.empty(sum(counts), dtype=torch.int32, device=device).split(counts)
    if check or device.type == "cpu":  # a launch of its own, and nobody reads it otherwise
        found.fill_(-1)
    call(
        "rebuild",
        device,
        None if old is None else old.indptr,
        indices,
        difference.num_cols,
        removed,
        added,
        *scratch,
        out_indptr,
        out_indices,
        found,
    )
    result = Csr(out_indptr, out_indices, difference.num_cols, difference.values)
    if check:
        _report(found, difference)
        if device.type == "cuda" and old is None:
            check_csr(result, "difference", ascending=True)
    return result


def with_self_loops(csr: Csr, weight: float = 1.0) -> Csr:
    """A + weight I: the matrix with its diagonal, rows still in order.

    Entries of a matrix without values count as 1; the result has values where the matrix has, or
    where `weight` is not 1.

    Raises:
        InvalidInputError: a matrix that is not square or holds a diagonal entry already.
    """
    if csr.num_rows != csr.num_cols:
        raise InvalidInputError(f"csr is {csr.num_rows} x {csr.num_cols}, expected a square matrix")
    rows, device = csr.num_rows, csr.indptr.device
    diagonal = torch.arange(rows, dtype=torch.int32, device=device)
    loops = Difference(
        removed=torch.empty(2, 0, dtype=torch.int32, device=device),
        added=torch.stack([diagonal, diagonal]),
        values=None,
        nnz=csr.nnz + rows,
        num_rows=rows,
        num_cols=rows,
        plain=False,
    )
    try:
        wider = rebuild(csr, loops, check=True)
    except InvalidInputError as error:
        raise InvalidInputError(
            f"csr holds self loops or is out of order ({error})",
            hint="drop self loops when the snapshot is made (`edge_snapshots`)",
        ) from error
    if csr.values is None and weight == 1.0:
        return wider
    lengths = wider.indptr.diff()
    entry_rows = torch.repeat_interleave(diagonal, lengths, output_size=wider.nnz)  # [n]
    values = torch.full((wider.nnz,), weight, device=device)
    values[entry_rows != wider.indices] = 1.0 if csr.values is None else csr.values
    return dataclasses.replace(wider, values=values)


def _dtype(index: str) -> torch.dtype:
    if index not in INDEX_TYPES:
        raise unknown_key("index", index, INDEX_TYPES)
    return INDEX_TYPES[index]


def _arrays(previous: Csr, current: Csr) -> tuple[Tensor, ...]:
    return previous.indptr, previous.indices, current.indptr, current.indices


def _values(csr: Csr) -> Tensor:
    return torch.ones(csr.nnz) if csr.values is None else csr.values.detach()


def _same_entries(previous: Csr, current: Csr) -> bool:
    return previous.indptr is current.indptr and previous.indices is current.indices


def _check_shapes(previous: Csr, current: Csr) -> None:
    old, new = (previous.num_rows, previous.num_cols), (current.num_rows, current.num_cols)
    if old != new:
        raise InvalidInputError(
            f"previous is {old[0]} x {old[1]}, current is {new[0]} x {new[1]}; "
            "snapshots share one vertex set"
        )


_checked: WeakIdKeyDictionary = WeakIdKeyDictionary()


def _check_once(csr: Csr, argument: str) -> None:
    """A complete check that is made again only when an array was exchanged or written to."""
    if csr.indptr.device.type != "cpu":
        raise UnsupportedError(
            f"{argument} lies on '{csr.indptr.device}', differences are made on the CPU",
            hint="encode before the snapshots move",
        )
    stamp: tuple[Any, ...] = (
        id(csr.indptr),
        csr.indptr._version,
        csr.indices._version,
        csr.num_cols,
        id(csr.values),
    )
    known = _checked.get(csr.indices)
    if known is not None and known[0] == stamp:
        return
    check_csr(csr, argument, ascending=True)
    if csr.values is not None and csr.values.dim() != 1:
        raise InvalidInputError(
            f"{argument}.values has shape {tuple(csr.values.shape)}, expected one per entry"
        )
    _checked[csr.indices] = (stamp, csr.indptr, csr.values)  # identities of a stamp stay taken


def _check_pairs(difference: Difference) -> None:
    removed, added = difference.removed, difference.added
    for name, pairs in (("removed", removed), ("added", added)):
        if pairs.dtype not in INDEX_TYPES.values() or pairs.dim() != 2 or pairs.shape[0] != 2:
            raise InvalidInputError(
                f"difference.{name} is {pairs.dtype} of shape {tuple(pairs.shape)}, expected int64 "
                "or int32 [2, count]"
            )
        if not pairs.is_contiguous():
            raise InvalidInputError(f"difference.{name} is not contiguous")
        if pairs.device != added.device or pairs.dtype != added.dtype:
            raise InvalidInputError(
                f"difference.{name} is {pairs.dtype} on {pairs.device}, difference.added "
                f"{added.dtype} on {added.device}"
            )
    if difference.plain and removed.shape[1]:
        raise InvalidInputError("difference.removed is not empty, but the difference is plain")
    if difference.plain and added.shape[1] != difference.nnz:
        raise InvalidInputError(
            f"difference.added has {added.shape[1]} entries, expected nnz = {difference.nnz}"
        )
    values = difference.values
    if values is not None and (values.numel() != difference.nnz or values.device != added.device):
        raise InvalidInputError(
            f"difference.values has {values.numel()} entries on {values.device}, expected "
            f"{difference.nnz} on {added.device}"
        )


def _check_base(old: Csr, difference: Difference, device: torch.device) -> None:
    check_layout(old, "previous")
    if old.indptr.device != device:
        raise InvalidInputError(
            f"previous lies on {old.indptr.device}, the difference on {device}",
        )
    if (old.num_rows, old.num_cols) != (difference.num_rows, difference.num_cols):
        raise InvalidInputError(
            f"previous is {old.num_rows} x {old.num_cols}, the difference is of "
            f"{difference.num_rows} x {difference.num_cols}"
        )
    nnz = old.nnz - difference.removed.shape[1] + difference.added.shape[1]
    if nnz != difference.nnz:
        raise InvalidInputError(
            f"previous has {old.nnz} entries, with {difference.removed.shape[1]} removed and "
            f"{difference.added.shape[1]} added that is {nnz}, expected {difference.nnz}"
        )


def _report(found: Tensor, difference: Difference) -> None:
    missing, held, disorder = found.tolist()

    def pair(name: str, k: int) -> str:
        pairs: Tensor = getattr(difference, name)
        return str(tuple(pairs[:, k].tolist())) if k < pairs.shape[1] else f"at {k}"

    if disorder >= 0:
        raise InvalidInputError(
            "difference holds pairs outside the matrix, out of order or twice "
            f"(near pair {disorder} of removed or added)",
        )
    if missing >= 0:
        raise InvalidInputError(
            f"difference.removed names {pair('removed', missing)} or a pair near it, which "
            "previous does not hold",
            hint="a difference can only be applied to the snapshot that it was made from",
        )
    if held >= 0:
        raise InvalidInputError(
            f"difference.added names {pair('added', held)} or a pair near it, which previous "
            "holds already",
            hint="a difference can only be applied to the snapshot that it was made from",
        )
