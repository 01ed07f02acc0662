"""Hybrid partition: groups of ranks share snapshots by rows (ESDG, section 6.5 of the paper)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from dgbench.datasets import SnapshotSequence
from dgbench.models import TimelineModel, TimelineState
from dgbench.models.timeline import Carry
from dgbench.runtime.collectives import Communicator, Exchange
from dgbench.runtime.fields import check_count
from dgbench.systems.base.timeline import TimelineTask
from dgbench.systems.esdg.exchange import Arriving
from dgbench.systems.esdg.hybrid_plan import (
    Balance,
    GroupShares,
    check_budget,
    groups_of,
    parts_of,
    row_blocks,
)
from dgbench.systems.esdg.partition import PartitionedPass
from dgbench.systems.esdg.vertex_plan import needs
from dgbench.systems.esdg.vertex_rows import HeldRows, can_scan, last_temporal, temporal
from dgbench.systems.esdg.weights import chain_run, spatial_run


class HybridSplit(PartitionedPass):
    """Groups own contiguous shares of a block's snapshots; inside a group a rank owns rows of them.

    A convolution asks the group for the rows of its input that the rank's own rows read and no
    others. Temporal halves run over vertices dealt out to all ranks, as in the snapshot partition,
    with the same two redistributions. One rank per group is the snapshot partition, one group the
    vertex partition by ranges. A snapshot's matrix is never whole on a rank of a larger group, so
    graphs can be trained that no rank could hold.

    Attributes:
        group: ranks per group.
        rows: rows of a snapshot for each member of a group.
        held_rows: this rank's rows.
        pieces: 1: an exchange is waited for at once. More: a group's share of a block travels in so
            many pieces, and one is convolved while others are under way.
    """

    def __init__(
        self,
        comm: Communicator,
        model: TimelineModel,
        data: SnapshotSequence,
        num_nodes: int,
        *,
        group: int,
        norm: str = "sym",
        dtype: torch.dtype = torch.float32,
        task: TimelineTask | None = None,
        pieces: int = 1,
        precompute: bool = True,
        fused: bool = True,
        balance: Balance = "rows",
        budget: int | None = None,
    ) -> None:
        """Lists and matrices of a block are made by `prepare`, else at its first pass.

        Args:
            comm: of P ranks; lists and matrices lie on its device.
            model: replicated.
            data: the whole sequence.
            num_nodes: N.
            group: ranks that share a snapshot, a divisor of P.
            norm, dtype: of A-hat.
            task: needed for `loss_sum` only.
            pieces: see above.
            precompute: keep A-hat X; else the first layer exchanges X, in forward passes.
            fused: run recurrences as a compiled scan.
            balance: whether members get equally many rows or entries, see `row_blocks`.
            budget: bytes that a rank has for its part of one snapshot's matrix; None: no limit.

        Raises:
            InvalidInputError, UnknownKeyError: an argument out of range.
            UnsupportedError: a part does not fit into the budget.
        """
        groups_of(comm.size, group)
        check_count("'pieces'", pieces)
        self.comm, self.model, self.task = comm, model, task
        self.num_nodes, self.group = num_nodes, group
        self.pieces, self.precompute = pieces, precompute
        self.fused = fused and can_scan(model, comm.device)
        steps = task.steps if task is not None else len(data)
        topology = [data.topology[t] for t in range(steps)]
        self.rows = row_blocks(topology, num_nodes, group, balance)
        if budget is not None:
            check_budget(topology, self.rows, budget)
        self._index, self._member = divmod(comm.rank, group)
        self.parts = parts_of(self.rows)
        self.held_rows = HeldRows(
            comm,
            data,
            self.parts,
            member=self._member,
            base=self._index * group,
            norm=norm,
            dtype=dtype,
            task=task,
            precompute=precompute,
        )

    @cached_property
    def remote_pairs(self) -> int:
        """Sources of pairs that members ask each other for, over all steps; 0 without pairs."""
        if self.task is None or self.task.workload.task != "link":
            return 0
        pairs = (self.task.pairs(t)[0].cpu() for t in range(self.task.steps))
        return sum(needs(target, source, self.parts).shape[1] for source, target in pairs)

    def shares(self, times: range) -> GroupShares:
        """Partition of the block `times` over ranks."""
        return GroupShares(times, tuple(self.rows), self.comm.size, self.pieces)

    def held(self, times: range) -> range:
        """The steps of the block of which `run` gives this rank's rows."""
        pieces = self.shares(times).steps[self._index]
        return range(pieces[0].start, pieces[-1].stop)

    def prepare(self, blocks: Sequence[range]) -> None:
        """Make the lists and matrices of these blocks, so that no pass has to."""
        for times in blocks:
            for steps in self.shares(times).steps[self._index]:
                self.held_rows.prepare(steps)

    def run(self, times: range, state: TimelineState | None) -> tuple[Tensor, TimelineState]:
        pieces, after = self._pass(times, state, self.model.num_layers)
        last = [p.wait() if isinstance(p, Arriving) else p for p in pieces]
        return (torch.cat(last) if len(last) > 1 else last[0]), after

    def border(self, times: range, state: TimelineState | None, *, lean: bool) -> TimelineState:
        if not lean:
            return self.run(times, state)[1]
        return self._pass(times, state, last_temporal(self.model) + 1, lean=True)[1]

    def _pass(
        self, times: range, state: TimelineState | None, layers: int, *, lean: bool = False
    ) -> tuple[list[Tensor | Arriving], TimelineState]:
        """As `run` through the first layers; with `lean` the last of them ends at its state."""
        state, model = state or TimelineState(), self.model
        links, chain = chain_run(model, len(times), state.chain, fused=self.fused)
        shares = self.shares(times)
        moves = GroupRedistribution(self.comm, shares)
        mine = shares.steps[self._index]
        carries: list[Carry] = [()] * model.num_layers
        pieces: list[Tensor | Arriving] = [self.held_rows.inputs(steps) for steps in mine]
        for layer in range(layers):
            begun: list[Exchange] = []
            done: list[Tensor | Arriving] = []
            reads = layer > 0 or not self.precompute
            following = self._begin(mine, pieces, 0, layer) if reads else None
            for k, steps in enumerate(mine):
                if following is None:
                    series = pieces[k]
                else:
                    now = following
                    # What the next piece reads travels while this one is convolved.
                    if k + 1 < len(mine):
                        following = self._begin(mine, pieces, k + 1, layer)
                    series = self.held_rows.convolve(steps, *now)
                y = spatial_run(model, layer, series, links, steps.start - times.start)
                if model.has_temporal(layer):
                    begun.append(moves.start_to_vertices(k, y))
                else:
                    done.append(y)
            if begun:
                x = moves.finish_to_vertices(begun)
                given = state.layers[layer] if state.layers else ()
                z, carries[layer] = temporal(model, layer, x, given, fused=self.fused)
                if lean and layer == layers - 1:
                    break
                done = [moves.start_to_snapshots(k, z) for k in range(self.pieces)]
            pieces = done
        return pieces, TimelineState(chain, tuple(carries))

    def loss_sum(self, times: range, out: Tensor) -> Tensor:
        """Summed loss of what this rank scores: its rows, or the pairs with a target among them.

        Every rank has to call it, also one without a step, as pairs make the ranks exchange.

        Args:
            times: a block.
            out: [steps held, rows held, D], as `run` gives them.
        """
        return self.held_rows.loss_sum(self.model.head, self.held(times), out)

    def gather(self, times: range, out: Tensor) -> list[Tensor]:
        """Outputs [N, D] of all steps of a block, on every rank, from what each rank has."""
        shares = self.shares(times)
        held = [range(pieces[0].start, pieces[-1].stop) for pieces in shares.steps]
        sizes = [len(steps) * len(rows) for steps in held for rows in self.rows]
        whole = self.comm.all_gather(out.reshape(-1, out.shape[-1]), sizes).split(sizes)
        found: list[Tensor] = []
        for k, steps in enumerate(held):
            parts = [
                whole[k * self.group + m].reshape(len(steps), len(rows), out.shape[-1])
                for m, rows in enumerate(self.rows)
            ]
            found += torch.cat(parts, dim=1).unbind(0)
        return found

    def _begin(
        self, mine: list[range], pieces: list[Tensor | Arriving], k: int, layer: int
    ) -> tuple[Tensor, Exchange | None]:
        """A piece that has arrived, and the exchange for the rows that it lacks."""
        piece = pieces[k]
        h = piece.wait() if isinstance(piece, Arriving) else piece
        return h, self.held_rows.start(mine[k], h, grad=layer > 0)


class GroupRedistribution:
    """The two redistributions of a layer between rows of a group's steps and vertices of all steps.

    Like `Redistribution`, with messages cut by what a member's rows and a rank's vertices share.
    """

    def __init__(self, comm: Communicator, shares: GroupShares) -> None:
        self.comm, self.shares = comm, shares
        self._index, self._member = divmod(comm.rank, len(shares.rows))
        self._chunks = shares.overlap[self._member]
        self._from = [row[comm.rank] for row in shares.overlap]

    def start_to_vertices(self, piece: int, y: Tensor) -> Exchange:
        """Send this rank's rows of a piece, [steps, rows, D], to the owners of the vertices."""
        steps, width = y.shape[0], y.shape[2]
        runs = [c.reshape(-1, width) for c in y.split(self._chunks, dim=1)]
        return self.comm.start_all_to_all(
            torch.cat(runs), [steps * c for c in self._chunks], self._sizes(piece), grad=True
        )

    def finish_to_vertices(self, begun: Sequence[Exchange]) -> Tensor:
        """[steps of the block, own vertices, D] in order of time, from the pieces in order."""
        arrived = [exchange.wait() for exchange in begun]
        width, group = arrived[0].shape[1], len(self.shares.rows)
        runs = [rows.split(self._sizes(piece)) for piece, rows in enumerate(arrived)]
        blocks = []
        for k, pieces in enumerate(self.shares.steps):
            for piece, steps in enumerate(pieces):
                parts = [
                    runs[piece][k * group + m].reshape(len(steps), own, width)
                    for m, own in enumerate(self._from)
                ]
                blocks.append(torch.cat(parts, dim=1) if group > 1 else parts[0])
        return torch.cat(blocks) if len(blocks) > 1 else blocks[0]

    def start_to_snapshots(self, piece: int, z: Tensor) -> Arriving:
        """Send one piece of every rank's steps of z [steps of the block, own vertices, D] home."""
        first, width = self.shares.times.start, z.shape[2]
        runs = []
        for pieces in self.shares.steps:
            steps = pieces[piece]
            part = z[steps.start - first : steps.stop - first]
            runs += [rows.reshape(-1, width) for rows in part.split(self._from, dim=1)]
        own = len(self.shares.steps[self._index][piece])
        exchange = self.comm.start_all_to_all(
            torch.cat(runs), self._sizes(piece), [own * c for c in self._chunks], grad=True
        )
        return Arriving(exchange, own, self._chunks)

    def _sizes(self, piece: int) -> list[int]:
        """Rows of this rank's vertices that each rank has in a piece."""
        return [len(pieces[piece]) * own for pieces in self.shares.steps for own in self._from]
