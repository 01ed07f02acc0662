"""Owner machine of each vertex, and the serving rank for each requesting rank (GNNFlow 4.4).

A vertex, the edges stored with it, its features and its memory live on one machine (edge-cut). The
paper assigns by the identity hash, `id mod P`: nothing is kept, a new vertex costs O(1), and its
place among the vertices of its machine is `id div P`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, Protocol

import torch
from torch import Tensor

from dgbench.runtime.errors import InvalidInputError, unknown_key
from dgbench.runtime.fields import check_count

Schedule = Literal["static", "first", "random"]
SCHEDULES: Final[tuple[Schedule, ...]] = ("static", "first", "random")
"""Rule for the rank of the owner's machine that serves a request: that of the same local rank (the
paper), always the first one, or one by a hash of vertex and requesting rank (controls)."""

_MIX: Final = 0x9E3779B97F4A7C15 - (1 << 64)
"""Odd multiplier of a hash, as an int64."""


class Owners(Protocol):
    """An assignment of vertices to machines."""

    machines: int

    def of(self, ids: Tensor) -> Tensor:
        """int64, the machine of each vertex; any shape."""
        ...

    def local(self, ids: Tensor) -> Tensor:
        """int64, place of each vertex among those of its machine."""
        ...

    def count(self, machine: int, num_vertices: int) -> int:
        """Vertices of a machine if there are `num_vertices` in all."""
        ...


@dataclass(frozen=True, slots=True)
class IdentityHash:
    """The paper's assignment: `id mod machines`.

    Attributes:
        machines: P >= 1.
    """

    machines: int

    def __post_init__(self) -> None:
        check_machines(self.machines)

    def of(self, ids: Tensor) -> Tensor:
        """As in `Owners`."""
        return ids % self.machines

    def local(self, ids: Tensor) -> Tensor:
        """As in `Owners`."""
        return torch.div(ids, self.machines, rounding_mode="floor")

    def count(self, machine: int, num_vertices: int) -> int:
        """As in `Owners`."""
        return len(range(machine, num_vertices, self.machines))


class AssignedOwners:
    """Any assignment, kept as a table: what offline partitioners give.

    Args:
        part: int[N], machine of each vertex, in 0 .. machines - 1.
        machines: P >= 1.

    Raises:
        InvalidInputError: a machine that does not exist.
    """

    def __init__(self, part: Tensor, machines: int) -> None:
        check_machines(machines)
        if part.dim() != 1:
            raise InvalidInputError(f"'part' has shape {tuple(part.shape)}, needed: one dimension")
        self.machines = machines
        self.part = part.long()
        if part.numel() and not 0 <= int(self.part.min()) <= int(self.part.max()) < machines:
            raise InvalidInputError(
                f"'part' holds machines {int(self.part.min())} to {int(self.part.max())}, allowed: "
                f"0 to {machines - 1}"
            )
        self._sizes = torch.bincount(self.part, minlength=machines)
        order = torch.argsort(self.part, stable=True)
        first = self._sizes.cumsum(0) - self._sizes
        local = torch.empty_like(self.part)
        local[order] = torch.arange(part.numel()) - first[self.part[order]]
        self._tables = {self.part.device: (self.part, local)}  # by the device that asks

    def of(self, ids: Tensor) -> Tensor:
        """As in `Owners`."""
        return self._table(ids.device)[0][ids]

    def local(self, ids: Tensor) -> Tensor:
        """As in `Owners`."""
        return self._table(ids.device)[1][ids]

    def _table(self, device: torch.device) -> tuple[Tensor, Tensor]:
        if device not in self._tables:
            part, local = self._tables[self.part.device]
            self._tables[device] = part.to(device), local.to(device)
        return self._tables[device]

    def count(self, machine: int, num_vertices: int) -> int:
        """As in `Owners`; an offline partition knows only the vertices that it was made for.

        Raises:
            InvalidInputError: another number of vertices.
        """
        if num_vertices != self.part.numel():
            raise InvalidInputError(
                f"the partition was made for {self.part.numel()} vertices, there are {num_vertices}"
            )
        return int(self._sizes[machine])


@dataclass(frozen=True, slots=True)
class MachineLayout:
    """Ranks of a group on machines: rank = machine * per_machine + local rank.

    Attributes:
        machines: parts of the graph; 1: every rank has all of it.
        per_machine: ranks of each machine.

    Raises:
        InvalidInputError: fewer than one of either.
    """

    machines: int
    per_machine: int = 1

    def __post_init__(self) -> None:
        check_machines(self.machines)
        if isinstance(self.per_machine, bool) or self.per_machine < 1:
            raise InvalidInputError(f"'per_machine' is {self.per_machine!r}, needed: at least 1")

    @property
    def ranks(self) -> int:
        return self.machines * self.per_machine

    def machine(self, rank: int) -> int:
        """Whose graph the rank holds."""
        return rank // self.per_machine

    def machines_of(self, ranks: Tensor) -> Tensor:
        """The same for many: int64 of any shape."""
        return torch.div(ranks, self.per_machine, rounding_mode="floor")

    def members(self, machine: int) -> range:
        """The ranks of a machine."""
        return range(machine * self.per_machine, (machine + 1) * self.per_machine)

    def servers(
        self, asker: int | Tensor, machine: Tensor, ids: Tensor, schedule: Schedule = "static"
    ) -> Tensor:
        """Rank that serves each vertex; a rank serves its own machine's itself.

        Args:
            asker: rank that asks, or int64[n], that of each vertex.
            machine: int64[n], owners of the vertices.
            ids: int64[n], the vertices.
            schedule: one of `SCHEDULES`.

        Returns:
            int64[n].

        Raises:
            UnknownKeyError: another schedule.
        """
        per = self.per_machine
        asker = torch.as_tensor(asker)
        if schedule == "static":
            found = machine * per + asker % per
        elif schedule == "first":
            found = machine * per
        elif schedule == "random":
            found = machine * per + (((ids + 1) * _MIX + asker) * _MIX >> 33) % per
        else:
            raise unknown_key("schedule", schedule, SCHEDULES)
        return torch.where(machine == self.machines_of(asker), asker, found)


def check_machines(machines: int) -> None:
    """Raise InvalidInputError unless it is a number of machines."""
    check_count("'machines'", machines)


@dataclass(frozen=True, slots=True)
class MachineShares:
    """Shares of the machines under an assignment of vertices.

    Attributes:
        vertices: int64[P], vertices that have an edge.
        records: int64[P], edges as they are stored: at the source, or at both ends if undirected.
        cut: share of the edges whose ends lie on two machines.
    """

    vertices: Tensor
    records: Tensor
    cut: float

    @property
    def vertex_excess(self) -> float:
        """Excess of the largest share of vertices over the mean, as a share of the mean."""
        return _excess(self.vertices)

    @property
    def record_excess(self) -> float:
        """The same of records."""
        return _excess(self.records)


def shares(owners: Owners, src: Tensor, dst: Tensor, *, undirected: bool) -> MachineShares:
    """Count vertices and records of each machine.

    Args:
        owners: of the vertices.
        src, dst: int64[E].
        undirected: whether an edge is stored at both ends.
    """
    first, second = owners.of(src), owners.of(dst)
    records = torch.bincount(first, minlength=owners.machines)
    if undirected:
        records = records + torch.bincount(second, minlength=owners.machines)
    active = torch.unique(torch.cat([src, dst]))
    return MachineShares(
        vertices=torch.bincount(owners.of(active), minlength=owners.machines),
        records=records,
        cut=float((first != second).double().mean()) if src.numel() else 0.0,
    )


def variation(values: Tensor) -> float:
    """Coefficient of variation over the ranks: standard deviation over mean; 0 for nothing."""
    values = values.double()
    mean = float(values.mean()) if values.numel() else 0.0
    return float(values.std(correction=0)) / mean if mean > 0 else 0.0


def _excess(counts: Tensor) -> float:
    mean = float(counts.double().mean())
    return float(counts.max()) / mean - 1 if mean > 0 else 0.0
