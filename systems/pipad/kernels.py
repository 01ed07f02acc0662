"""The kernels that aggregate the groups of a frame: one choice for the engine and for the tuner.

`kernel_of` says by which kernel a setting aggregates. The engine aggregates by it, and the tuner's
table of gains times it (`groups.race`), on topology in the same form: where it lies, or as it
arrives.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from dgbench.kernels_cuda.aggregate import aggregate_parts_scatter
from dgbench.kernels_cuda.slices import DEFAULT_CAP
from dgbench.kernels_cuda.steps import FrameProduct
from dgbench.systems.pipad.merged import PartitionAggregation
from dgbench.systems.pipad.paper_kernel import SlicedAggregation, SlicedOperand, operand_of
from dgbench.systems.pipad.partitions import Partitions
from dgbench.systems.pipad.products import product_of
from dgbench.systems.pipad.received import Received, ReceivedAggregation, Single
from dgbench.systems.pipad.snapshots import SnapshotAggregation
from dgbench.systems.pipad.wire import unpack

Aggregate = Callable[[Tensor], Tensor]
"""A-hat_t h_t of consecutive snapshots, float32[W, N, F] -> float32[W, N, F]."""

Turn = Callable[[], None]
"""One pass over an aggregation: forward and, where a gradient is wanted, backward."""


class _Echo(torch.autograd.Function):
    """A scalar whose gradient is its argument.

    So that nothing but the aggregation is in its time: naming a gradient in the call makes torch
    load its symbolic shapes, a third of a second, and a sum would pass over all of it.
    """

    @staticmethod
    def forward(ctx: Any, y: Tensor) -> Tensor:
        ctx.save_for_backward(y)
        return y.new_zeros(())

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return ctx.saved_tensors[0]


def turn_of(
    aggregate: Aggregate,
    shape: Sequence[int],
    device: torch.device,
    *,
    wants: bool,
) -> Turn:
    """A pass over an aggregation of random numbers [W, N, F]; `wants` a gradient or not."""
    draw = torch.Generator().manual_seed(0)
    h = torch.randn(*shape, generator=draw).to(device).requires_grad_(wants)

    def turn() -> None:
        y = aggregate(h)
        if wants:
            torch.autograd.grad(_Echo.apply(y), h)

    return turn


def product_turn(product: FrameProduct, width: int, *, wants: bool) -> Turn:
    """`turn_of` for the product of a compiled step, on rows as the step lays them."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(product.steps * product.vertices * width, generator=draw)
    y, dx = torch.empty_like(x), torch.empty_like(x)

    def turn() -> None:
        product.multiply(x, y, width)
        if wants:
            product.multiply(y, dx, width, transposed=True)

    return turn


class PlacedKernel(ABC):
    """Aggregation over topology that lies in memory and stays there."""

    name: ClassVar[str]
    copies: ClassVar[int] = 0
    """Times its own size that a topology takes beside itself once it was multiplied with."""

    @abstractmethod
    def aggregate(
        self, h: Tensor, partitions: Partitions, groups: Sequence[range], *, together: bool
    ) -> Tensor:
        """A-hat_t h_t of consecutive groups, differentiable, [W, N, F].

        Args:
            partitions: of which `groups` are.
            together: aggregate each group in one pass, else a snapshot at a time.
        """

    def over(self, partitions: Partitions, groups: Sequence[range]) -> Aggregate:
        """The aggregation of `groups`, each in one pass where it holds several snapshots."""
        together = len(groups[0]) > 1
        return partial(self.aggregate, partitions=partitions, groups=groups, together=together)

    def turn(self, partitions: Partitions, groups: Sequence[range], width: int) -> Turn:
        """A pass over what `over` gives."""
        shape = (sum(map(len, groups)), partitions.sequence.num_nodes, width)
        return turn_of(self.over(partitions, groups), shape, partitions.device, wants=True)

    def settle(self, partitions: Partitions, group: range, *, together: bool) -> bool:
        """Make what a group's products need beside its topology; False where the kernel has none
        of its own to make."""
        return False


class RowKernel(PlacedKernel):
    """Ours: every row of a partition has one owner that writes it once, forward and backward."""

    name = "rows"
    # Merged and sorted lists of the topology, and of its transpose, at most.
    copies = 4

    def aggregate(
        self, h: Tensor, partitions: Partitions, groups: Sequence[range], *, together: bool
    ) -> Tensor:
        if together:
            return PartitionAggregation.apply(h, [partitions.partition(g) for g in groups])
        return SnapshotAggregation.apply(h, [partitions.snapshot(t) for g in groups for t in g])


class ProductKernel(RowKernel):
    """Ours: that of `RowKernel`, in a compiled step."""

    name = "products"

    def turn(self, partitions: Partitions, groups: Sequence[range], width: int) -> Turn:
        found = product_of(partitions, groups, width, together=len(groups[0]) > 1)
        return product_turn(found.product, width, wants=True)


class SliceKernel(PlacedKernel):
    """The paper's (Algorithm 1), forward over slices and backward over those of the transpose."""

    name = "slices"

    def __init__(self, cap: int, vector: bool) -> None:
        self._options = {"cap": cap, "vector": vector, "back": True}

    def aggregate(
        self, h: Tensor, partitions: Partitions, groups: Sequence[range], *, together: bool
    ) -> Tensor:
        units = groups if together else [range(t, t + 1) for g in groups for t in g]
        operands = partial(self._operands, partitions, units, together)
        return SlicedAggregation.apply(h, [len(unit) for unit in units], operands)

    def settle(self, partitions: Partitions, group: range, *, together: bool) -> bool:
        for unit in [group] if together else [range(t, t + 1) for t in group]:
            self._operand(partitions, unit, together)
        return True

    def _operands(
        self, partitions: Partitions, units: Sequence[range], together: bool
    ) -> list[SlicedOperand]:
        return [self._operand(partitions, unit, together) for unit in units]

    def _operand(self, partitions: Partitions, unit: range, together: bool) -> SlicedOperand:
        if together:
            part = partitions.partition(unit)
            topology: Any = (part.parts, part.row_scale, part.col_scale)
        else:
            topology = partitions.snapshot(unit.start)
        return partitions.derived(
            "slices",
            unit,
            lambda: operand_of(*topology, **self._options),
            lambda operand: operand.nbytes,
            whole=not together,
        )


class ArrivedKernel(ABC):
    """Aggregation over topology as it arrives over a link, of which no transpose is made."""

    name: ClassVar[str]
    copies: ClassVar[int] = 0

    @abstractmethod
    def aggregate(
        self,
        h: Tensor,
        sizes: Sequence[int],
        groups: Callable[[], Iterable[Received]],
        *,
        together: bool,
    ) -> Tensor:
        """A-hat_t h_t of consecutive groups, differentiable, [W, N, F].

        Args:
            sizes: snapshots of each group.
            groups: called once and walked through while computing; a group may still be on its way
                while the one before is aggregated.
            together: aggregate each group in one pass, else a snapshot at a time.
        """  # fmt: skip

    def over(
        self, partitions: Partitions, groups: Sequence[range], device: torch.device
    ) -> Aggregate:
        """The aggregation of `groups` that are on a device in the words of the link, opened as a
        step opens them; each in one pass where it holds several snapshots."""
        wires = [partitions.wire(group) for group in groups]
        sent = [(one.layout, [t.to(device) for t in one.tensors]) for one in wires]

        def opened() -> Iterator[Received]:
            for group, (layout, tensors) in zip(groups, sent, strict=True):
                yield Received.of(group, [unpack(layout, tensors)], partitions.norm)

        together, sizes = len(groups[0]) > 1, [len(group) for group in groups]
        return partial(self.aggregate, sizes=sizes, groups=opened, together=together)

    def turn(
        self, partitions: Partitions, groups: Sequence[range], width: int, device: torch.device
    ) -> Turn:
        """A pass over what `over` gives."""
        shape = (sum(map(len, groups)), partitions.sequence.num_nodes, width)
        return turn_of(self.over(partitions, groups, device), shape, device, wants=True)


class ScatterKernel(ArrivedKernel):
    """Ours: rows with one owner forward, backward scattered from the very rows that arrived."""

    name = "scattered rows"

    def aggregate(
        self, h: Tensor, sizes: Sequence[int], groups: Callable[[], Iterable[Received]],
        *, together: bool,
    ) -> Tensor:  # fmt: skip
        if not together:
            return ReceivedAggregation.apply(h, lambda: _singles(groups()))
        pairs = zip(h.split(sizes), groups(), strict=True)
        done = [self._merged(received, x) for x, received in pairs]
        return done[0] if len(done) == 1 else torch.cat(done)

    def _merged(self, received: Received, x: Tensor) -> Tensor:
        coalescent = x.transpose(0, 1).contiguous()  # [N, S, F]
        scales = received.row_scale, received.col_scale
        y = aggregate_parts_scatter(received.parts, coalescent, *scales, self_loop=True)
        return y.transpose(0, 1)


class ArrivedSliceKernel(ArrivedKernel):
    """The paper's (Algorithm 1) over the slices that arrived, backward scattered from them."""

    name = "scattered slices"

    def __init__(self, cap: int, vector: bool) -> None:
        self._options = {"cap": cap, "vector": vector, "back": False}

    def aggregate(
        self, h: Tensor, sizes: Sequence[int], groups: Callable[[], Iterable[Received]],
        *, together: bool,
    ) -> Tensor:  # fmt: skip
        if not together:
            sizes = [1] * sum(sizes)
        return SlicedAggregation.apply(h, sizes, lambda: self._operands(groups(), together))

    def _operands(self, groups: Iterable[Received], together: bool) -> Iterator[SlicedOperand]:
        for received in groups:
            scales = received.row_scale, received.col_scale
            if isinstance(received.parts, list):  # snapshots that travelled whole
                for i, csr in enumerate(received.parts):
                    mine = (scale[:, i : i + 1].contiguous() for scale in scales)
                    yield operand_of(csr, *mine, **self._options)
                continue
            operand = operand_of(received.parts, *scales, **self._options)
            if together or len(received.times) == 1:
                yield operand
            else:
                yield from (operand.snapshot(i) for i in range(len(received.times)))


def _singles(groups: Iterable[Received]) -> Iterator[Single]:
    for received in groups:
        yield from (received.snapshot(i) for i in range(len(received.times)))


def placed_kernel(
    on: Mapping[str, bool], cap: int = DEFAULT_CAP, *, compiled: bool = False
) -> PlacedKernel:
    """The kernel of a setting where data lie: the engine's, and the one that the tuner times.

    Args:
        on: the system's techniques by name.
        cap: entries of a slice at most.
        compiled: whether a step is one compiled call.
    """
    if on["slice_coalescing"]:
        return SliceKernel(cap, on["vector_loads"])
    return ProductKernel() if compiled else RowKernel()


def arrived_kernel(on: Mapping[str, bool], cap: int = DEFAULT_CAP) -> ArrivedKernel:
    """The kernel of a setting on a device, or in the arena that stands for one: the engine's, and
    the one that the tuner times."""
    if on["slice_coalescing"]:
        return ArrivedSliceKernel(cap, on["vector_loads"])
    return ScatterKernel()


def kernels_on(device: str) -> list[PlacedKernel | ArrivedKernel]:
    """All kernels that settings run on a device; on a CPU also those of the arena."""
    ways = [{"slice_coalescing": slices, "vector_loads": True} for slices in (False, True)]
    arrived: list[PlacedKernel | ArrivedKernel] = [arrived_kernel(on) for on in ways]
    if torch.device(device).type == "cuda":
        return arrived
    return [placed_kernel(ways[0], compiled=True), *map(placed_kernel, ways), *arrived]
