"""Who samples how much: work of a distributed batch counted rank by rank, without the ranks.

The samples of a batch are the same for any number of machines, so what each rank would be asked
under a layout and a schedule follows from the samples of one store. That gives 32 ranks on any
machine; it counts work, not seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dgbench.runtime.collectives import equal_parts
from dgbench.systems.gnnflow.owners import MachineLayout, Owners, Schedule

if TYPE_CHECKING:
    from dgbench.kernels_cuda.temporal_sample import Sample


@dataclass(slots=True)
class Served:
    """Work by rank.

    Attributes:
        targets: int64[P], vertices that a rank samples, for itself or others.
        records: int64[P], neighbours that it hands out.
        remote: int64[P, P], of the targets, by asker and server; the diagonal is a rank's own.
        returned: int64[P, P], of the records, by server and asker.
    """

    targets: Tensor
    records: Tensor
    remote: Tensor
    returned: Tensor

    @classmethod
    def nothing(cls, ranks: int) -> Served:
        """Zero of everything."""
        zero = torch.zeros(ranks, dtype=torch.int64)
        return cls(zero, zero.clone(), zero.new_zeros(ranks, ranks), zero.new_zeros(ranks, ranks))

    def __iadd__(self, other: Served) -> Served:
        self.targets += other.targets
        self.records += other.records
        self.remote += other.remote
        self.returned += other.returned
        return self


def root_ranks(events: int, ranks: int, sides: int = 3) -> Tensor:
    """int64[sides * events]: which rank has each root of a batch whose events are dealt evenly."""
    parts = torch.tensor(equal_parts(events, ranks))
    return torch.repeat_interleave(torch.arange(ranks), parts).repeat(sides)


def served(
    layout: MachineLayout,
    owners: Owners,
    samples: Sequence[Sequence[Sample]],
    asker: Tensor,
    schedule: Schedule = "static",
) -> Served:
    """Count what each rank does for one batch.

    Args:
        layout: ranks on machines. owners: of the vertices.
        samples: [snapshot][hop], of the whole batch.
        asker: int64[R], rank of each root, see `root_ranks`.
        schedule: which rank of a machine is asked.
    """
    ranks = layout.ranks
    found = Served.nothing(ranks)
    for hops in samples:
        who = asker
        for sample in hops:
            counts = sample.offsets.diff()
            server = layout.servers(who, owners.of(sample.nodes), sample.nodes, schedule)
            found.targets += torch.bincount(server, minlength=ranks)
            pair = torch.bincount(who * ranks + server, minlength=ranks * ranks)
            found.remote += pair.view(ranks, ranks)
            back = torch.zeros(ranks * ranks, dtype=torch.int64)
            back.index_add_(0, server * ranks + who, counts)
            found.returned += back.view(ranks, ranks)
            found.records += back.view(ranks, ranks).sum(1)
            who = torch.cat([who, who.repeat_interleave(counts)])
    return found
