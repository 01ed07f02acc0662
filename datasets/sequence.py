"""A discrete-time graph: T snapshots over one set of vertices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args, overload

import msgspec
import torch
from torch import Tensor

from dgbench.datasets.origin import Origin
from dgbench.kernels_cuda.csr import Csr
from dgbench.runtime.errors import DataError, InvalidInputError

Source = Literal["auto", "real", "twin"]
Features = Literal["auto", "native", "degree", "random"]


class SnapshotSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Specification of a dataset's snapshot sequence.

    Attributes:
        dataset: name or alias of a card.
        source: `real`, `twin`, or `auto` (real where it is held, else the twin).
        scale, seed: size factor and seed of a twin; the seed also draws random features.
        snapshots: T. Events are cut into T windows of equal length over their whole span; of
            data that comes as snapshots the first T are kept. None takes PiPAD's T, or else
            the card's default.
        edge_life: snapshots that an edge lives, its own included (ESDG 5.1); 1 is raw.
        feature_dim: F, floats per vertex.
        features: `native` (the data's own), `degree`, `random`, or `auto` (native where the
            data has some, else degree).
        symmetric: whether every edge is also stored in the other direction.
        weighted: whether adjacency entries carry the summed weights of their events.
    """

    dataset: str
    source: Source = "auto"
    scale: float = 1.0
    seed: int = 1
    snapshots: int | None = None
    edge_life: int = 1
    feature_dim: int = 16
    features: Features = "auto"
    symmetric: bool = False
    weighted: bool = False

    def check(self) -> SnapshotSpec:
        """Return self, or raise InvalidInputError naming the field that is out of range."""
        for name, allowed in (("source", Source), ("features", Features)):
            words = get_args(allowed)
            if getattr(self, name) not in words:
                raise InvalidInputError(
                    f"{name} is {getattr(self, name)!r}; allowed: {', '.join(words)}"
                )
        whole = {
            "snapshots": self.snapshots,
            "edge_life": self.edge_life,
            "feature_dim": self.feature_dim,
        }
        for name, value in whole.items():
            if value is not None and (not isinstance(value, int) or value < 1):
                raise InvalidInputError(f"{name} is {value!r}; an integer >= 1 is allowed")
        check_scale(self.scale)
        return self


def check_scale(scale: float) -> float:
    """Return the scale of a twin, or raise InvalidInputError unless it is finite and > 0."""
    if not (isinstance(scale, (int, float)) and 0 < scale < float("inf")):
        raise InvalidInputError(f"scale is {scale!r}; a finite number > 0 is allowed")
    return float(scale)


class PackedTopology(Sequence[Csr]):
    """T CSR matrices in four long arrays; each `Csr` is a view, made when first asked for.

    Args:
        indptr: int64[M, N + 1], row offsets of each of M distinct matrices, each from 0.
        indices: int32[sum of nnz], all columns, one matrix after the other.
        starts: M + 1 offsets into `indices`.
        values: float32[sum of nnz] or None.
        length: T. With M = 1 and T > 1 every snapshot is the same `Csr` object.
    """

    def __init__(
        self,
        indptr: Tensor,
        indices: Tensor,
        starts: Sequence[int],
        values: Tensor | None,
        length: int,
    ) -> None:
        if indptr.shape[0] not in (1, length):
            raise DataError(f"{indptr.shape[0]} matrices stored for {length} snapshots")
        self._indptr, self._indices, self._values = indptr, indices, values
        self._starts = starts
        self._made: list[Csr | None] = [None] * indptr.shape[0]
        self._length = length

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Csr: ...
    @overload
    def __getitem__(self, index: slice) -> list[Csr]: ...
    def __getitem__(self, index: int | slice) -> Csr | list[Csr]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self._length))]
        if not -self._length <= index < self._length:
            raise IndexError(f"snapshot {index} of {self._length}")
        which = 0 if len(self._made) == 1 else index % self._length
        found = self._made[which]
        if found is None:
            rows = slice(self._starts[which], self._starts[which + 1])
            found = Csr(
                self._indptr[which],
                self._indices[rows],
                self._indptr.shape[1] - 1,
                None if self._values is None else self._values[rows],
            )
            self._made[which] = found
        return found


@dataclass(frozen=True, slots=True, eq=False)
class SnapshotSequence:
    """T snapshots: topology, features and targets of every vertex at every step.

    Attributes:
        topology: T `Csr` of N rows and N columns, without self loops and duplicates; the same
            object where the graph does not change.
        features: float32[T, N, F], contiguous.
        targets: float32[T, N]; row t is the value AT snapshot t, which a frame ending at
            t - 1 has to predict.
        num_nodes: N.
        origin: where the data came from.
        spec: what was asked for, if it was opened from a spec.
        edge_counts: stored entries of each snapshot, if known without looking.
    """

    topology: Sequence[Csr]
    features: Tensor
    targets: Tensor
    num_nodes: int
    origin: Origin
    spec: SnapshotSpec | None = None
    edge_counts: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        steps, nodes = len(self.topology), self.num_nodes
        if tuple(self.features.shape[:2]) != (steps, nodes) or self.features.dim() != 3:
            raise DataError(
                f"features have shape {tuple(self.features.shape)}; ({steps}, {nodes}, F) is needed"
            )
        if tuple(self.targets.shape) != (steps, nodes):
            raise DataError(
                f"targets have shape {tuple(self.targets.shape)}; ({steps}, {nodes}) is needed"
            )

    def check(self) -> SnapshotSequence:
        """Look at every value once; raise DataError for a bad shape, dtype, id or NaN."""
        for name, value in (("features", self.features), ("targets", self.targets)):
            if value.dtype != torch.float32:
                raise DataError(f"{name} are {value.dtype}; float32 is needed")
            if not bool(torch.isfinite(value).all()):
                raise DataError(f"{name} hold a value that is not finite")
        seen: set[int] = set()
        for step, csr in enumerate(self.topology):
            if id(csr) in seen:
                continue
            seen.add(id(csr))
            _check_csr(step, csr, self.num_nodes)
        return self

    def __len__(self) -> int:
        return len(self.topology)

    @property
    def num_edges(self) -> list[int]:
        """Stored entries of each snapshot."""
        if self.edge_counts is not None:
            return list(self.edge_counts)
        return [csr.nnz for csr in self.topology]

    @property
    def feature_dim(self) -> int:
        return self.features.shape[2]

    def slice(self, first: int, last: int) -> SnapshotSequence:
        """Snapshots first .. last - 1, sharing all storage."""
        if not 0 <= first <= last <= len(self):
            raise InvalidInputError(
                f"snapshots [{first}, {last}) asked for; 0 <= first <= last <= {len(self)} "
                "is allowed"
            )
        return SnapshotSequence(
            topology=list(self.topology[first:last]),
            features=self.features[first:last],
            targets=self.targets[first:last],
            num_nodes=self.num_nodes,
            origin=self.origin,
            spec=self.spec,
            edge_counts=None if self.edge_counts is None else self.edge_counts[first:last],
        )


def _check_csr(step: int, csr: Csr, nodes: int) -> None:
    if csr.num_rows != nodes or csr.num_cols != nodes:
        raise DataError(
            f"snapshot {step} is {csr.num_rows} x {csr.num_cols}; {nodes} x {nodes} is needed"
        )
    if csr.indptr.dtype != torch.int64 or csr.indices.dtype != torch.int32:
        raise DataError(f"snapshot {step}: indptr must be int64 and indices int32")
    falls = bool((csr.indptr[1:] < csr.indptr[:-1]).any())
    if falls or int(csr.indptr[0]) != 0 or int(csr.indptr[-1]) != csr.nnz:
        raise DataError(f"snapshot {step}: indptr must rise from 0 to nnz = {csr.nnz}")
    if csr.nnz and not 0 <= int(csr.indices.min()) <= int(csr.indices.max()) < nodes:
        raise DataError(f"snapshot {step}: column ids must satisfy 0 <= id < {nodes}")
    if csr.values is not None and not bool(torch.isfinite(csr.values).all()):
        raise DataError(f"snapshot {step}: a value is not finite")
