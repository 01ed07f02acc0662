"""Exchange of only those outputs of the last layer that a rank's loss reads.

The snapshot partition (ESDG, section 4.2) takes all outputs of the last temporal half back to the
owners of the snapshots. Link prediction reads the ends of a tenth as many pairs as there are edges,
which on sparse snapshots are few of the vertices. The vertex partition asks for single rows all the
time; a snapshot partition may do so where the redistribution ends, too. A choice of ours.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dgbench.runtime.collectives import Communicator
from dgbench.systems.base.timeline import TimelineTask
from dgbench.systems.esdg.partition import BlockShares


@dataclass(frozen=True, slots=True)
class ScoredRows:
    """One rank's part of that exchange for one block; all of it lies where the pairs do.

    Attributes:
        rows: int64, rows of z [steps of the block times own vertices, D] that it sends, ordered by
            receiver, step and vertex.
        send, receive: numbers of rows by rank.
        ends: int64[2, pairs], the pairs of its steps as positions among the rows that arrive.
        labels: of the pairs.
    """

    rows: Tensor
    send: tuple[int, ...]
    receive: tuple[int, ...]
    ends: Tensor
    labels: Tensor

    @classmethod
    def build(cls, task: TimelineTask, shares: BlockShares, rank: int) -> ScoredRows:
        """Lists made from the pairs of all steps, which every rank knows; task `link` only."""
        own, nodes = shares.vertices[rank], shares.num_nodes
        stops = torch.tensor([part.stop for part in shares.vertices])
        rows, send = [], []
        for pieces in shares.steps:
            before = sum(map(len, rows))
            for t in (t for piece in pieces for t in piece):
                read = torch.unique(task.pairs(t)[0].cpu())
                mine = read[(read >= own.start) & (read < own.stop)] - own.start
                rows.append(mine + (t - shares.times.start) * len(own))
            send.append(sum(map(len, rows)) - before)
        held = [t for piece in shares.steps[rank] for t in piece]
        none = torch.zeros(0, dtype=torch.int64)
        keys, labels = [none.view(2, 0)], []
        for number, t in enumerate(held):
            ends, label = task.pairs(t)
            ends = ends.cpu()
            owner = torch.searchsorted(stops, ends, right=True)
            keys.append((owner * len(held) + number) * nodes + ends)
            labels.append(label)
        wanted = torch.cat(keys, dim=1)
        arriving = torch.unique(wanted)
        from_rank = arriving // max(1, len(held) * nodes)
        there = task.pairs(shares.times.start)[0].device if shares.times else wanted.device
        return cls(
            rows=(torch.cat(rows) if rows else none).to(there),
            send=tuple(send),
            receive=tuple(torch.bincount(from_rank, minlength=shares.size).tolist()),
            ends=torch.searchsorted(arriving, wanted).to(there),
            labels=torch.cat(labels) if labels else torch.zeros(0, device=there),
        )

    def fetch(self, comm: Communicator, z: Tensor) -> Tensor:
        """The rows that this rank's loss reads, [rows, D], from z [steps, own vertices, D]."""
        chosen = z.reshape(-1, z.shape[-1]).index_select(0, self.rows)
        return comm.start_all_to_all(chosen, self.send, self.receive).wait()
