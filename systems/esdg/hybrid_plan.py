"""Who owns what when groups of ranks share snapshots, and what that takes of a rank's memory.

ESDG (SC 2021), section 6.5, sketches it for two GPUs and graphs that do not fit on one: the ranks
of a group split every snapshot by rows, groups split the timeline.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, Literal

import numpy as np
import torch

from dgbench.kernels_cuda.csr import Csr
from dgbench.runtime.errors import InvalidInputError, UnsupportedError, unknown_key
from dgbench.systems.esdg.partition import BlockShares, consecutive
from dgbench.systems.esdg.vertex_parts import VertexParts

Balance = Literal["rows", "entries"]
BALANCES: Final[tuple[Balance, ...]] = ("rows", "entries")


def row_blocks(
    topology: Sequence[Csr], num_nodes: int, group: int, balance: Balance = "rows"
) -> list[range]:
    """Consecutive rows for each member of a group, the same in all snapshots and groups.

    Args:
        topology: what `entries` are counted in, over all of it; not read for `rows`.
        num_nodes: N.
        group: members, at least 1; some have no row where there are more of them than vertices.
        balance: `rows`: equally many. `entries`: so many that entries and rows together are
            nearly equal, as hubs are not spread evenly over the ids.

    Raises:
        UnknownKeyError: another balance.
    """
    if balance not in BALANCES:
        raise unknown_key("balance", balance, BALANCES)
    if balance == "rows":
        return consecutive(range(num_nodes), group)
    weight = np.full(num_nodes, len(topology), dtype=np.int64)
    for csr in topology:
        weight += csr.indptr.diff().numpy()
    before = np.concatenate([[0], np.cumsum(weight)])
    # A row goes where its middle lies.
    middle = before[:-1] + before[1:]
    wanted = [2 * int(before[-1]) * k / group for k in range(1, group)]
    cuts = [0, *np.searchsorted(middle, wanted).tolist(), num_nodes]
    return [range(a, b) for a, b in pairwise(cuts)]


def parts_of(blocks: Sequence[range]) -> VertexParts:
    """Blocks of rows as parts of the vertices."""
    lengths = torch.tensor([len(b) for b in blocks])
    return VertexParts(torch.repeat_interleave(torch.arange(len(blocks)), lengths), len(blocks))


@dataclass(frozen=True)
class GroupShares:
    """Partition of a block of the timeline over P ranks in groups.

    Rank r is member r % group of group r // group. For convolutions it owns its member's rows of
    its group's steps; for temporal halves the r-th of P equal shares of the vertices, at all steps.

    Attributes:
        times: the block.
        rows: of each member.
        size: P.
        pieces: see `BlockShares`.
        groups: P / group.
        steps: [group][piece] -> steps.
        vertices: rank -> vertices of the temporal half.
        overlap: [member][rank] -> vertices that are in both the member's rows and the rank's share.
    """

    times: range
    rows: tuple[range, ...]
    size: int
    pieces: int = 1
    groups: int = field(init=False)
    steps: list[list[range]] = field(init=False)
    vertices: list[range] = field(init=False)
    overlap: list[list[int]] = field(init=False)

    def __post_init__(self) -> None:
        groups = groups_of(self.size, len(self.rows))
        shares = BlockShares(self.times, self.rows[-1].stop, groups, self.pieces)
        vertices = consecutive(range(self.rows[-1].stop), self.size)
        overlap = [[_common(r, v) for v in vertices] for r in self.rows]
        for name, value in (
            ("groups", groups),
            ("steps", shares.steps),
            ("vertices", vertices),
            ("overlap", overlap),
        ):
            object.__setattr__(self, name, value)

    @property
    def kept(self) -> int:
        """(vertex, step) pairs that one redistribution leaves where they are."""
        group = len(self.rows)
        return sum(
            len(range(steps[0].start, steps[-1].stop)) * self.overlap[m][k * group + m]
            for k, steps in enumerate(self.steps)
            for m in range(group)
        )


def groups_of(size: int, group: int) -> int:
    """P / group.

    Raises:
        InvalidInputError: no member, or a group that does not divide P.
    """
    if isinstance(group, bool) or not isinstance(group, int) or group < 1 or size % group:
        allowed = [g for g in range(1, size + 1) if size % g == 0]
        raise InvalidInputError(
            f"'group' is {group!r}, allowed with {size} ranks: {', '.join(map(str, allowed))}",
            hint="all groups have equally many ranks",
        )
    return size // group


def part_bytes(csr: Csr, rows: range) -> int:
    """Bytes of some rows of a snapshot as stored: int64 row starts, int32 columns, values."""
    entries = int(csr.indptr[rows.stop] - csr.indptr[rows.start])
    width = 4 + (0 if csr.values is None else csr.values.element_size())
    return 8 * (len(rows) + 1) + width * entries


def most_bytes(topology: Sequence[Csr], blocks: Sequence[range]) -> int:
    """The most that a member holds of one snapshot."""
    return max((part_bytes(csr, rows) for csr in topology for rows in blocks), default=0)


def least_group(
    topology: Sequence[Csr], num_nodes: int, size: int, budget: int, balance: Balance = "rows"
) -> int:
    """Fewest ranks that must share a snapshot so that its part fits everywhere.

    Args:
        topology: all snapshots.
        num_nodes: N.
        size: P; groups are divisors of it.
        budget: bytes that a rank has for one snapshot's matrix.
        balance: see `row_blocks`.

    Raises:
        UnsupportedError: not even all ranks together can hold it.
    """
    for group in (g for g in range(1, size + 1) if size % g == 0):
        if most_bytes(topology, row_blocks(topology, num_nodes, group, balance)) <= budget:
            return group
    raise UnsupportedError(
        f"a snapshot split over all {size} ranks does not fit into {budget} bytes on each",
        hint="more ranks, or the balance 'entries'",
    )


def check_budget(topology: Sequence[Csr], blocks: Sequence[range], budget: int) -> None:
    """Refuse parts that are too large; all ranks decide alike.

    Raises:
        UnsupportedError: one of them does not fit.
    """
    most = most_bytes(topology, blocks)
    if most > budget:
        raise UnsupportedError(
            f"{most} bytes of a snapshot's matrix lie on one rank of a group of {len(blocks)}, "
            f"the budget is {budget}",
            hint="let more ranks share a snapshot: a larger 'group'",
        )


def _common(a: range, b: range) -> int:
    return max(0, min(a.stop, b.stop) - max(a.start, b.start))
