"""Bringing blocks of snapshots to the device by graph difference (ESDG, section 3.2).

The first snapshot of a block goes as coordinates, every other one as what changed since the one
before it, which lies on the device already; both sides keep entries in canonical order. A block's
inputs travel twice per epoch, for its forward pass and again for the pass that is recorded, unless
the first pass can do without them. The next block's may travel while this one computes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dgbench.datasets.transforms import factors
from dgbench.kernels_cuda.aggregate import spmm
from dgbench.kernels_cuda.aggregate.prepared import trust
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.difference import (
    Difference,
    Index,
    encode_sequence,
    rebuild,
    with_self_loops,
)
from dgbench.runtime.errors import InvalidInputError
from dgbench.runtime.meter import Meter
from dgbench.runtime.transfer import PendingTransfer, Staged, TransferLink
from dgbench.systems.esdg.layout import CoordinateProduct, Coordinates, device_scales

if TYPE_CHECKING:
    from dgbench.datasets import SnapshotSequence

TOPOLOGY_SLOTS = 2
"""Changes on their way at a time: those being merged and the next ones."""


@dataclass(frozen=True, slots=True)
class TransferFormat:
    """Format of a transferred snapshot, and the parts that the device computes; every choice is
    exact.

    Attributes:
        difference: send changes; off, every snapshot goes as coordinates (the paper's Base).
        index: type of the indices.
        ship_loops: the matrix sent is A + I. Its loops are common to all snapshots, which flatters
            the difference; off, the device adds them.
        ship_values: a float32 per entry travels: normalised where loops are shipped, else the
            entry's weight, as the loop's own scale could not be had from normalised neighbours.
            Off, the device forms all scales from its degrees; weights of a weighted graph travel
            all the same, since no degree gives them back.
        fallback: send coordinates where a difference would be larger.
        precompute: the first layer's A-hat X is made once on the host and travels instead of X.
        coordinates: the device holds matrices as int64 rows and columns, 16 bytes per entry beside
            its value, and compresses one when it multiplies by it (the paper's layout). Off, it
            holds compressed rows and, once multiplied by, their transpose.
    """

    difference: bool = True
    index: Index = "int64"
    ship_loops: bool = False
    ship_values: bool = True
    fallback: bool = True
    precompute: bool = True
    coordinates: bool = False

    @property
    def normalised(self) -> bool:
        """True if entries are transferred as those of A-hat, to be used as they are."""
        return self.ship_loops and self.ship_values

    def shipped(self, csr: Csr, norm: str) -> Csr:
        """The matrix that is sent for a snapshot's adjacency without self loops."""
        wide = with_self_loops(csr) if self.ship_loops else csr
        if self.normalised:
            rows, cols = factors(csr, norm)
            values = rows.repeat_interleave(wide.indptr.diff()) * cols[wide.indices]
            if wide.values is not None:
                values *= wide.values
            return replace(wide, values=values)
        return wide


@dataclass(slots=True)
class _StagedSnapshot:
    """One snapshot, staged. `changes` is given back once merged, `kept` with its block; `row` is
    the features of `kept` alone."""

    difference: Difference
    changes: Any
    kept: Any
    row: Any


class BlockInputs:
    """A block on the device; the `Aggregator` that the models run on.

    Attributes:
        matrices: as they were sent, by snapshot.
    """

    def __init__(self, form: TransferFormat, norm: str, dtype: torch.dtype, meter: Meter) -> None:
        self._form, self._norm, self._dtype, self._meter = form, norm, dtype, meter
        self.matrices: dict[int, Csr | Coordinates] = {}
        self._scales: dict[int, tuple[Tensor | None, Tensor | None]] = {}
        self._features: dict[int, Tensor] = {}

    def add(self, t: int, csr: Csr, features: Tensor) -> None:
        """Take a snapshot that arrived."""
        self._features[t] = features
        if self._form.coordinates:
            self.matrices[t] = Coordinates.of(csr)
            return
        self.matrices[t] = trust(csr)
        scales: tuple[Tensor | None, Tensor | None] = None, None
        if not self._form.normalised:
            scales = device_scales(csr, self._norm, self._dtype, loops=self._form.ship_loops)
        self._scales[t] = scales

    def raw(self, t: int) -> Tensor:
        if self._form.precompute:
            raise InvalidInputError(
                f"features of snapshot {t} were aggregated before they were sent",
                hint="switch precompute off for a model that reads them",
            )
        return self._features[t]

    def first(self, t: int) -> Tensor:
        if self._form.precompute:
            return self._features[t]
        return self.apply(t, self._features[t])

    def apply(self, t: int, h: Tensor) -> Tensor:
        csr = self.matrices[t]
        self._meter.count("aggregations")
        self._meter.count("edges_aggregated", csr.nnz)
        if isinstance(csr, Coordinates):
            return CoordinateProduct.apply(
                h, csr, self._form.ship_loops, self._form.normalised, self._norm
            )
        return spmm(csr, h, *self._scales[t], self_loop=not self._form.ship_loops)

    def clear(self) -> None:
        """Forget the block; what was handed out must not be read any more."""
        self.matrices.clear()
        self._scales.clear()
        self._features.clear()


class AggregatedRows:
    """Aggregated features of some snapshots, for a first pass that needs no more."""

    def __init__(self, features: dict[int, Tensor]) -> None:
        self._features = features

    def raw(self, t: int) -> Tensor:
        raise InvalidInputError(f"features of snapshot {t} were aggregated before they were sent")

    def first(self, t: int) -> Tensor:
        return self._features[t]

    def apply(self, t: int, h: Tensor) -> Tensor:
        raise InvalidInputError(f"the matrix of snapshot {t} was not sent for this pass")


@dataclass(slots=True)
class _InFlightBlock:
    """A block whose inputs are on their way.

    Attributes:
        changes: of all its snapshots, as one group.
        kept: of each snapshot.
    """

    block: range
    changes: PendingTransfer
    kept: list[PendingTransfer]

    def release(self) -> None:
        for ticket in (self.changes, *self.kept):
            ticket.release()


class Delivery:
    """Sends blocks over a link and merges them where they arrive.

    Args:
        data: topology without self loops, and features.
        times: snapshots that are ever sent; others are not encoded.
        form: what travels.
        norm: `sym` or `mean`.
        link: the way to the device, with `slots_for(...)` slots at least.
        apart: a second way with one slot, which `expect` needs: changes of a whole block travel
            over it, so that slots of `link` are all of one size. `link` then needs as many slots as
            two blocks have snapshots.
        early: a way for `rows`, with a slot for each.
        meter: counts `bytes_topology`, `bytes_features`, `snapshots_plain`,
            `snapshots_difference`.
        dtype: of features on the device.
    """

    def __init__(
        self,
        data: SnapshotSequence,
        times: Sequence[int],
        form: TransferFormat,
        norm: str,
        link: TransferLink,
        meter: Meter,
        *,
        dtype: torch.dtype = torch.float32,
        apart: TransferLink | None = None,
        early: TransferLink | None = None,
    ) -> None:
        self._data, self._times = data, list(times)
        self._form, self._norm, self._dtype = form, norm, dtype
        self._link, self._apart, self._early, self._meter = link, apart, early, meter
        self._coming: _InFlightBlock | None = None
        self._groups: dict[range, Staged] = {}
        self._parcels: dict[int, _StagedSnapshot] = {}

    def prepare(self, blocks: Sequence[range]) -> None:
        """Encode and stage everything once for these blocks (on the CPU, as the paper does)."""
        starts = {block.start for block in blocks}
        at = {t: i for i, t in enumerate(self._times)}
        made: dict[int, Csr] = {}
        shipped = []
        for t in self._times:
            csr = self._data.topology[t]
            if id(csr) not in made:
                made[id(csr)] = self._form.shipped(csr, self._norm)
            shipped.append(made[id(csr)])
        weighted = any(csr.values is not None for csr in shipped)
        differences = encode_sequence(
            shipped,
            restarts={at[t] for t in starts} if self._form.difference else range(len(shipped)),
            index=self._form.index,
            values=self._form.ship_values or weighted,
            fallback=self._form.fallback,
        )
        for t, difference in zip(self._times, differences, strict=True):
            changes = self._link.stage_all([difference.removed, difference.added])
            values = [] if difference.values is None else [difference.values]
            kept = self._link.stage_all([*values, self._sent_features(t)])
            staged = difference.with_tensors([*changes, *kept[:-1]])
            self._parcels[t] = _StagedSnapshot(staged, changes, kept, Staged.of(kept[-1:]))
        if self._apart is not None:
            for block in blocks:
                group = [tensor for t in block for tensor in self._parcels[t].changes]
                self._groups[block] = Staged.of(group)

    def _sent_features(self, t: int) -> Tensor:
        x = torch.as_tensor(self._data.features[t]).to(self._dtype).contiguous()
        if not self._form.precompute:
            return x
        csr = self._data.topology[t]
        rows, cols = factors(csr, self._norm, self._dtype)
        return spmm(csr, x, rows, cols, self_loop=True)

    def difference(self, t: int) -> Difference:
        """Transferred difference of a snapshot's matrix."""
        return self._parcels[t].difference

    def topology_bytes(self, blocks: Sequence[range]) -> int:
        """Bytes of all matrices of these blocks, each sent once."""
        return sum(self._parcels[t].difference.nbytes for block in blocks for t in block)

    def feature_bytes(self, blocks: Sequence[range]) -> int:
        """Bytes of all features of these blocks, each sent once: 4 N F per snapshot."""
        return sum(self._parcels[t].kept[-1].nbytes for block in blocks for t in block)

    @contextmanager
    def load(self, block: range, recorded: bool = False) -> Iterator[BlockInputs]:
        """A block on the device, for the time of a `with`; prepared with such a start.

        Args:
            block: consecutive snapshots.
            recorded: whether a backward pass follows; counted apart as `bytes_recorded`.
        """
        inputs = BlockInputs(self._form, self._norm, self._dtype, self._meter)
        held: list[PendingTransfer] = []
        try:
            with self._meter.phase("transfer"):
                self._bring(block, recorded, inputs, held)
            yield inputs
        finally:
            inputs.clear()
            for ticket in held:
                ticket.release()

    def expect(self, block: range) -> None:
        """Start bringing a block, to be loaded next; one of those `prepare` was given.

        Does nothing without a second way. What is on its way when another block is loaded is
        dropped.
        """
        if self._apart is None or (self._coming is not None and self._coming.block == block):
            return
        self.drop()
        kept: list[PendingTransfer] = []
        changes = self._apart.send(self._groups[block])
        try:
            kept += [self._link.send(self._parcels[t].kept) for t in block]
        finally:
            self._coming = _InFlightBlock(block, changes, kept)

    def drop(self) -> None:
        """Give up what `expect` began."""
        if self._coming is not None:
            self._coming.release()
            self._coming = None

    @contextmanager
    def rows(self, times: Sequence[int]) -> Iterator[AggregatedRows]:
        """Aggregated features of these snapshots alone, for the time of a `with`."""
        if times and not self._form.precompute:
            raise InvalidInputError("features are aggregated on the device, which needs matrices")
        way = self._link if self._early is None else self._early
        tickets: list[PendingTransfer] = []
        try:
            with self._meter.phase("transfer"):
                for t in times:
                    tickets.append(way.send(self._parcels[t].row))
                    self._meter.count("bytes_features", tickets[-1].nbytes)
                found = {t: ticket.wait()[0] for t, ticket in zip(times, tickets, strict=True)}
            yield AggregatedRows(found)
        finally:
            for ticket in tickets:
                ticket.release()

    def _bring(
        self, block: range, recorded: bool, inputs: BlockInputs, held: list[PendingTransfer]
    ) -> None:
        if self._apart is None:
            self._bring_one_by_one(block, recorded, inputs, held)
            return
        if self._coming is not None and self._coming.block != block:
            self.drop()
        self.expect(block)
        way, self._coming = self._coming, None
        held += way.kept
        try:
            changes = way.changes.wait()
            previous: Csr | None = None
            for i, t in enumerate(block):
                parcel = self._parcels[t]
                *values, features = way.kept[i].wait()
                arrived = parcel.difference.with_tensors([*changes[2 * i : 2 * i + 2], *values])
                previous = rebuild(previous, arrived)
                inputs.add(t, previous, features)
                self._count(parcel, recorded)
        finally:
            way.changes.release()

    def _bring_one_by_one(
        self, block: range, recorded: bool, inputs: BlockInputs, held: list[PendingTransfer]
    ) -> None:
        previous: Csr | None = None
        ahead: PendingTransfer | None = self._link.send(self._parcels[block[0]].changes)
        try:
            for t in block:
                parcel = self._parcels[t]
                kept = self._link.send(parcel.kept)
                held.append(kept)
                now, ahead = ahead, None
                if t + 1 in block:
                    ahead = self._link.send(self._parcels[t + 1].changes)
                try:
                    changes = now.wait()
                    *values, features = kept.wait()
                    arrived = parcel.difference.with_tensors([*changes, *values])
                    previous = rebuild(previous, arrived)
                finally:
                    now.release()
                inputs.add(t, previous, features)
                self._count(parcel, recorded)
        finally:
            if ahead is not None:
                ahead.release()

    def _count(self, parcel: _StagedSnapshot, recorded: bool) -> None:
        topology, features = parcel.difference.nbytes, parcel.kept[-1].nbytes
        self._meter.count("bytes_topology", topology)
        self._meter.count("bytes_features", features)
        if recorded:
            self._meter.count("bytes_recorded", topology + features)
        kind = "snapshots_plain" if parcel.difference.plain else "snapshots_difference"
        self._meter.count(kind)

    def close(self) -> None:
        """Forget what was staged and close the links."""
        self.drop()
        self._parcels.clear()
        self._groups.clear()
        for link in (self._link, self._apart, self._early):
            if link is not None:
                link.close()


def slots_for(longest: int) -> int:
    """Slots a link needs where blocks have up to `longest` snapshots."""
    return longest + TOPOLOGY_SLOTS
