"""Per-topology cache of the aggregation operators' preparations.

Checks, the transposed matrix, the merged exclusive list and the order of rows depend on a topology
only, and one topology is multiplied with many times. They are kept beside the topology's own
arrays: an entry lives as long as `indices` does, and is made again when an array was exchanged or
written to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from dgbench.kernels_cuda._dispatch import call
from dgbench.kernels_cuda.build_info import extension
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.csr.check import check_csr
from dgbench.kernels_cuda.transpose import transpose_unchecked
from dgbench.runtime.errors import InvalidInputError

Arrays = tuple[Tensor | None, ...]
"""indptr, indices, values, ex_indptr, ex_entries, ex_values, order, in a compiled call's order.

int32 `values` are bits: which snapshots hold each entry of a union, in their stead.
`order` is the order of rows on the CPU and the table of long rows and tiles on CUDA."""

FEW_ENTRIES: Final = 1 << 13
"""Entries up to which a device needs no table of long rows: one block adds up any of them soon."""

AnyParts = TypeVar("AnyParts")


def cuts_rows(device: torch.device) -> bool:
    """Return True where long rows are cut and blocks share rows out; a CPU takes whole rows."""
    return device.type == "cuda"


@dataclass(slots=True)
class Extras:
    """Derived arrays that the compiled operators need besides the shared matrix.

    Attributes:
        exclusive: indptr, entries and values of the exclusive entries of all snapshots in one list
            of `column << bits | snapshot`; three times None where there are none.
        by_length: both lists with their rows sorted by length, and the row that each one is.
        asked: how often `by_length` was asked for. A copy pays from the second product on.
        heavy: on CUDA the rows that are cut into segments and where tiles begin, int32; None where
            there are few entries.
    """

    exclusive: tuple[Tensor | None, Tensor | None, Tensor | None]
    by_length: Arrays | None = None
    asked: int = 0
    heavy: Tensor | None = None

    def arrays(self, over: Csr, dtype: torch.dtype, ordered: bool) -> Arrays:
        if ordered and self.by_length is not None:
            return _of(self.by_length, dtype)
        values = None if over.values is None else over.values.detach()
        lists: Arrays = (over.indptr, over.indices, values, *self.exclusive, None)
        if cuts_rows(over.indptr.device):
            if self.heavy is None:
                self.heavy = list_heavy(lists)
            lists = (*lists[:6], self.heavy)
        elif ordered:
            self.asked += 1
            if self.asked > 1:
                lists = self.by_length = _sort(lists)
        return _of(lists, dtype)


class Prepared:
    """A checked topology, forward and, once asked for, transposed.

    Holds every array of the topology but `over.indices`, on whose life its own depends.

    Attributes:
        ascending: columns are known to ascend strictly inside every row.
        slices: row and first entry of every slice of each part, by cap; under 0 as they arrived.
    """

    def __init__(
        self,
        stamp: tuple[Any, ...],
        over: Csr,
        exclusive: list[Csr],
        *,
        ascending: bool = False,
        mask: Tensor | None = None,
    ) -> None:
        self.stamp = stamp
        self.ascending = ascending
        self.slices: dict[int, list[tuple[Tensor, Tensor]]] = {}
        # A stamp is of identities: they must stay taken.
        self._held = (over.indptr, over.values, mask)
        self._bits = mask is not None and over.values is not None and over.values.dim() == 1
        self._exclusive = exclusive
        self._forward: Extras | None = None
        self._transposed: tuple[Csr, Extras] | None = None

    def forward(self, over: Csr, dtype: torch.dtype, ordered: bool) -> Arrays:
        if self._forward is None:  # not before: a topology may only ever be stored or sent
            self._forward = Extras(_merge(self._exclusive))
        return self._read(self._forward.arrays(over, dtype, ordered))

    def single(self, over: Csr, dtype: torch.dtype, ordered: bool) -> Arrays:
        """indptr, indices, values and order of one matrix."""
        indptr, indices, values, *_, order = self.forward(over, dtype, ordered)
        return indptr, indices, values, order

    def settled(self, ordered: bool) -> bool:
        """Return True if the lists of one matrix are those of later products, too."""
        return not ordered or bool(self._forward and self._forward.by_length)

    def transposed(self, over: Csr, dtype: torch.dtype, ordered: bool) -> Arrays:
        if self._transposed is None:
            exclusive = [transpose_unchecked(part) for part in self._exclusive]
            self._transposed = transpose_unchecked(over), Extras(_merge(exclusive))
        matrix, extras = self._transposed
        return self._read(extras.arrays(matrix, dtype, ordered))

    def with_values(self, csr: Csr) -> Csr:
        """A matrix with the values that this was made with."""
        return Csr(csr.indptr, csr.indices, csr.num_cols, self._held[1])

    def _read(self, arrays: Arrays) -> Arrays:
        """Bits as what they are: a transpose takes them along as if they were floats."""
        values = arrays[2]
        if not self._bits or values is None:
            return arrays
        return (*arrays[:2], values.view(torch.int32), *arrays[3:])

    def settle(self, over: Csr, ordered: bool, *, backward: bool) -> None:
        """Make now what the first products would: merged lists, their order and transposes."""
        for arrays in (self.forward, self.transposed) if backward else (self.forward,):
            for _ in range(2):  # rows are sorted at the second product
                arrays(over, torch.float32, ordered)


_known: WeakIdKeyDictionary = WeakIdKeyDictionary()
_KEPT = 4  # topologies remembered per `indices`, such as one pattern with several sets of values


def prepare(csr: Csr) -> Prepared:
    """The prepared form of one matrix. Raises InvalidInputError as `check_csr` does."""
    return _look_up(csr, [], "csr")


def prepare_parts(parts: Any, *, ascending: bool = False) -> Prepared:
    """The prepared form of a partition with fields `over` and `exclusive`.

    Raises:
        InvalidInputError: a part that breaks the layout (with `ascending`, also one with disordered
            columns), parts of different shapes or devices, values in some parts only, or more than
            2^32 (column, snapshot) pairs.
    """
    exclusive = list(parts.exclusive)
    if not exclusive:
        raise InvalidInputError("parts.exclusive is empty, expected one matrix per snapshot")
    prepared = _look_up(parts.over, exclusive, "parts")
    if ascending and not prepared.ascending:
        check_csr(parts.over, "parts.over", ascending=True)
        prepared.ascending = True
    return prepared


def prepare_union(union: Any) -> tuple[Prepared, Csr]:
    """The prepared form of a union with fields `csr`, `mask` and `num_snapshots`, and its matrix.

    The values of the matrix are the union's own; without any, what tells its snapshots apart: the
    mask where a device reads bits, weights of 0 and 1 on the CPU.

    Raises:
        InvalidInputError: a matrix that breaks the layout, values or a mask that do not fit it.
    """
    csr, mask, count = union.csr, union.mask, union.num_snapshots
    stamp = (*_stamp(csr, []), id(mask), _version(mask), count)
    for entry in _known.get(csr.indices, ()):
        if entry.stamp == stamp:
            return entry, entry.with_values(csr)
    check_csr(csr, "union.csr")
    if (
        mask.dtype != torch.int32
        or tuple(mask.shape) != (csr.nnz,)
        or mask.device != csr.indices.device
    ):
        raise InvalidInputError(
            f"union.mask is {mask.dtype}[{tuple(mask.shape)}] on {mask.device}, expected "
            f"int32[{csr.nnz}] on {csr.indices.device}: a word for each entry"
        )
    if csr.values is not None and tuple(csr.values.shape) != (csr.nnz, count):
        raise InvalidInputError(
            f"union.csr.values has shape {tuple(csr.values.shape)}, expected {(csr.nnz, count)}: "
            "one value per entry and snapshot"
        )
    values = csr.values
    if values is None and count > 1:
        values = (
            mask.contiguous().view(torch.float32) if reads_bits(mask.device) else weights_of(union)
        )
    over = Csr(csr.indptr, csr.indices, csr.num_cols, values)
    entry = Prepared(stamp, over, [], mask=mask)
    _remember(entry, csr)
    return entry, over


def reads_bits(device: torch.device) -> bool:
    """Return True if the product over a union reads its mask; on the CPU it reads weights."""
    return device.type == "cuda"


def weights_of(union: Any) -> Tensor:
    """float32[nnz, S]: 1 in the snapshots that hold an entry of a union, 0 in the others."""
    bits = torch.arange(union.num_snapshots, device=union.mask.device)
    return (union.mask[:, None] >> bits & 1).float()


def trust(csr: Csr) -> Csr:
    """Remember a matrix as sound without looking at it; for matrices that dgbench made itself.

    Columns must ascend strictly inside every row. Returns the matrix.
    """
    _remember(Prepared(_stamp(csr, []), csr, [], ascending=True), csr)
    return csr


def trust_parts(parts: AnyParts) -> AnyParts:
    """`trust` for a partition with fields `over` and `exclusive`. Returns the partition."""
    exclusive = list(parts.exclusive)
    stamp = _stamp(parts.over, exclusive)
    _remember(Prepared(stamp, parts.over, exclusive, ascending=True), parts.over)
    return parts


def _look_up(over: Csr, exclusive: list[Csr], argument: str) -> Prepared:
    stamp = _stamp(over, exclusive)
    entries = _known.get(over.indices, ())
    for entry in entries:
        if entry.stamp == stamp:
            return entry
    if exclusive:
        _check_parts(over, exclusive, argument)
    else:
        check_csr(over, argument)
        if over.values is not None and over.values.dim() != 1:
            raise InvalidInputError(
                f"{argument}.values has shape {tuple(over.values.shape)}, expected one per entry"
            )
    entry = Prepared(stamp, over, exclusive)
    _remember(entry, over)
    return entry


def _remember(entry: Prepared, over: Csr) -> None:
    _known[over.indices] = (*_known.get(over.indices, ()), entry)[-_KEPT:]


def _stamp(over: Csr, exclusive: Sequence[Csr]) -> tuple[Any, ...]:
    """Key of a topology: identities and versions of its arrays, and numbers of columns."""
    arrays = [a for part in (over, *exclusive) for a in (part.indptr, part.indices, part.values)]
    return (
        (*map(id, arrays),),
        (*map(_version, arrays),),
        (over.num_cols, *[part.num_cols for part in exclusive]),
    )


def _version(array: Tensor | None) -> int:
    return 0 if array is None or array.is_inference() else array._version


def _check_parts(over: Csr, exclusive: Sequence[Csr], argument: str) -> None:
    check_csr(over, f"{argument}.over")
    shape = (over.num_rows, over.num_cols)
    snapshots = len(exclusive)
    for i, part in enumerate(exclusive):
        name = f"{argument}.exclusive[{i}]"
        check_csr(part, name)
        if (part.num_rows, part.num_cols) != shape:
            raise InvalidInputError(
                f"{name} is {part.num_rows} x {part.num_cols}, {argument}.over is "
                f"{shape[0]} x {shape[1]}"
            )
        if part.indptr.device != over.indptr.device:
            raise InvalidInputError(
                f"{name} lies on {part.indptr.device}, {argument}.over on {over.indptr.device}"
            )
        if (part.values is None) != (over.values is None):
            raise InvalidInputError(
                f"{name} {'has no' if part.values is None else 'has'} values, {argument}.over "
                f"{'has none' if over.values is None else 'has'}",
                hint="weight all parts or none",
            )
        if part.values is not None and part.values.dim() != 1:
            raise InvalidInputError(f"{name}.values must hold one value per entry")
    if over.values is not None and tuple(over.values.shape) != (over.nnz, snapshots):
        raise InvalidInputError(
            f"{argument}.over.values has shape {tuple(over.values.shape)}, expected "
            f"{(over.nnz, snapshots)}: one value per entry and snapshot"
        )
    if over.num_cols << (snapshots - 1).bit_length() > 2**32:
        raise InvalidInputError(
            f"{argument} has {over.num_cols} columns and {snapshots} snapshots, allowed are 2^32 "
            "pairs of both",
            hint="take fewer snapshots per partition",
        )


def _merge(exclusive: Sequence[Csr]) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The exclusive parts as one list per row, on the device they came from."""
    total = sum(part.nnz for part in exclusive)
    if total == 0:
        return None, None, None
    device = exclusive[0].indptr.device
    weighted = exclusive[0].values is not None
    indptr = torch.empty(exclusive[0].num_rows + 1, dtype=torch.int64, device=device)
    entries = torch.empty(total, dtype=torch.int32, device=device)
    values = torch.empty(total, dtype=torch.float32, device=device) if weighted else None
    call(
        "merge_exclusive",
        device,
        [part.indptr for part in exclusive],
        [part.indices for part in exclusive],
        [part.values.detach() for part in exclusive] if weighted else [],
        indptr,
        entries,
        values,
    )
    return indptr, entries, values


def _of(lists: Arrays, dtype: torch.dtype) -> Arrays:
    """Lists with their values in another type."""
    if dtype == torch.float32:
        return lists
    return tuple(a.to(dtype) if a is not None and a.is_floating_point() else a for a in lists)


def list_heavy(lists: Arrays) -> Tensor | None:
    """The table of long rows and tiles of a topology on CUDA, made there: no host waits."""
    indptr, indices, _, ex_indptr, ex_entries, *_ = lists
    entries = indices.numel() + (0 if ex_entries is None else ex_entries.numel())
    if entries <= FEW_ENTRIES:
        return None
    size = extension(indptr.device).heavy_size(indptr.numel() - 1, entries)
    table = torch.empty(size, dtype=torch.int32, device=indptr.device)
    call("list_heavy", indptr.device, indptr, ex_indptr, entries, table)
    return table


def _sort(lists: Arrays) -> Arrays:
    """A copy of both lists with their rows sorted by length, and the row that each one is."""
    indptr, indices, values, ex_indptr, ex_entries, ex_values, _ = lists
    order = torch.empty(indptr.numel() - 1, dtype=torch.int32)
    call("sort_rows", order.device, indptr, ex_indptr, order)
    taken: list[Tensor | None] = []
    for group in ((indptr, indices, values), (ex_indptr, ex_entries, ex_values)):
        out = [None if a is None else torch.empty_like(a) for a in group]
        if group[0] is not None:
            call("take_rows", order.device, *group, order, *out)
        taken += out
    return (*taken, order)
