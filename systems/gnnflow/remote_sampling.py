"""Sampling a graph that lies on several machines, hop by hop (GNNFlow 4.4, Figure 6).

Targets of a hop are split by owner. A rank samples its own machine's itself; each other machine is
asked at the rank with the same local rank as the asker, so that the ranks of a machine share what
is asked of it evenly, without any talk about it. Answers are put together in the order in which
they were asked for, and are the targets of the next hop.

What is drawn for a target depends on its position in the whole batch and on the draw, not on who
draws it (`temporal_sample`): samples are bit for bit those of one store, for any number of ranks.

Roots on a device stay there with all that is drawn for them: requests and answers travel from
device to device, and the host learns how many there are.

The paper's requests are asynchronous remote calls with a queue per GPU. Here all ranks exchange
requests and answers together, and a rank samples its own targets while requests travel.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import accumulate

import torch
from torch import Tensor

from dgbench.kernels_cuda.temporal_sample import Sample, next_targets
from dgbench.runtime.collectives import Communicator
from dgbench.systems.gnnflow.dispatch import check_group
from dgbench.systems.gnnflow.owners import MachineLayout, Owners, Schedule

HopSampler = Callable[..., Sample]
"""(nodes, times, *, fanout, hop, snapshot, positions, draw) -> Sample, over this machine's
records."""


class RemoteSampler:
    """k-hop samples over all machines; all ranks call it alike, also with no roots.

    Counts in the communicator's meter: `targets_own`, `targets_asked` of others, `targets_served`
    to others, `records_sampled` by this rank. `spent` has `sample_own` and `sample_served`, the
    processor seconds that this rank sampled for itself and for others.

    Args:
        comm: the group. layout: its ranks on machines. owners: of the vertices.
        hop_sampler: over the records of this rank's machine.
        fanouts: neighbours at most, by hop.
        snapshots, window, prop_time: as of `sample_hops`.
        schedule: which rank of a machine is asked.

    Attributes:
        homes: where the edges of the last samples are stored, see `EdgeHomes`.
    """

    def __init__(
        self,
        comm: Communicator,
        layout: MachineLayout,
        owners: Owners,
        hop_sampler: HopSampler,
        fanouts: Sequence[int],
        *,
        snapshots: int = 1,
        window: float | None = None,
        prop_time: bool = False,
        schedule: Schedule = "static",
    ) -> None:
        check_group(comm, layout, owners)
        self.comm, self.layout, self.owners = comm, layout, owners
        self.fanouts, self.snapshots, self.window = tuple(fanouts), snapshots, window
        self.prop_time = prop_time
        self.schedule: Schedule = schedule
        self.homes = EdgeHomes()
        self._hop = hop_sampler

    def sample(
        self, nodes: Tensor, times: Tensor, *, draw: int, positions: Tensor
    ) -> list[list[Sample]]:
        """[snapshot][hop], the answer of `sample_hops` over the whole graph.

        Args:
            nodes: int64[R], this rank's roots. times: float64[R].
            draw: ordinal of the batch, the same on all ranks.
            positions: int64[R], places of the roots in the roots of the whole batch.
        """
        shift = 0.0 if self.window is None else self.window
        targets = [(nodes, times - s * shift, positions) for s in range(self.snapshots)]
        found: list[list[Sample]] = [[] for _ in targets]
        self.homes.forget()
        for hop, fanout in enumerate(self.fanouts):
            samples = self._one_hop(targets, hop, fanout, draw)
            for hops, sample in zip(found, samples, strict=True):
                hops.append(sample)
            if hop + 1 < len(self.fanouts):
                targets = [next_targets(sample, self.prop_time) for sample in samples]
        return found

    def _one_hop(
        self, targets: list[tuple[Tensor, Tensor, Tensor]], hop: int, fanout: int, draw: int
    ) -> list[Sample]:
        """One hop of all snapshots, in one exchange."""
        comm = self.comm
        sizes = [nodes.numel() for nodes, _, _ in targets]
        nodes, times, positions = (torch.cat(column) for column in zip(*targets, strict=True))
        snapshot = torch.cat([torch.full_like(part[0], s) for s, part in enumerate(targets)])
        machine = self.owners.of(nodes)
        if self.layout.machines == 1:
            # Every rank has all of the graph.
            counts, rows = self._serve("own", nodes, times, positions, snapshot, hop, fanout, draw)
        else:
            server = self.layout.servers(comm.rank, machine, nodes, self.schedule)
            asked = torch.stack([nodes, times.view(torch.int64), positions, snapshot], dim=1)
            counts, rows = self._asked(server, asked, hop, fanout, draw)
        self.homes.note(rows[:, 1], machine.repeat_interleave(counts))
        return _cut(sizes, targets, counts, rows, fanout)

    def _asked(
        self, server: Tensor, asked: Tensor, hop: int, fanout: int, draw: int
    ) -> tuple[Tensor, Tensor]:
        """Neighbours of targets from the ranks that have them: (counts [n], rows [K, 3])."""
        comm = self.comm
        order = torch.argsort(server, stable=True)
        to = torch.bincount(server, minlength=comm.size).tolist()
        own, first = to[comm.rank], sum(to[: comm.rank])
        mine = asked[order[first : first + own]]
        to[comm.rank] = 0
        away = torch.cat([order[:first], order[first + own :]])
        came = comm.exchange_sizes(to)
        under_way = comm.start_all_to_all(asked[away], to, came)
        my_counts, my_rows = self._serve("own", *_columns(mine), hop, fanout, draw)
        requests = under_way.wait()
        comm.meter.count("targets_asked", away.numel())
        counts, rows = self._serve("served", *_columns(requests), hop, fanout, draw)
        answered = _sums(counts, came)
        got_counts = comm.all_to_all(counts, came, to)
        got_rows = comm.all_to_all(rows, answered, _sums(got_counts, to))
        # Back into the order of asking: targets by rank with the own ones in between.
        place = torch.cat([order[first : first + own], away])
        return _reordered(place, torch.cat([my_counts, got_counts]), torch.cat([my_rows, got_rows]))

    def _serve(
        self,
        whose: str,
        nodes: Tensor,
        times: Tensor,
        positions: Tensor,
        snapshot: Tensor,
        hop: int,
        fanout: int,
        draw: int,
    ) -> tuple[Tensor, Tensor]:
        """Sample from this machine's records: (counts [n], rows [K, 3]) in the order asked."""
        begin = time.thread_time()
        places, counts, rows = [], [], []
        for s in range(self.snapshots):
            mine = slice(None)
            if self.snapshots > 1:
                mine = (snapshot == s).nonzero().flatten()
                places.append(mine)
            found = self._hop(
                nodes[mine].contiguous(),
                times[mine].contiguous(),
                fanout=fanout,
                hop=hop,
                snapshot=s,
                positions=positions[mine].contiguous(),
                draw=draw,
            )
            counts.append(found.offsets.diff())
            bits = found.edge_times.view(torch.int64)
            rows.append(torch.stack([found.neighbours, found.eids, bits], dim=1))
        number, table = torch.cat(counts), torch.cat(rows)
        if self.snapshots > 1:
            number, table = _reordered(torch.cat(places), number, table)
        meter = self.comm.meter
        meter.spend(f"sample_{whose}", time.thread_time() - begin)
        meter.count(f"targets_{whose}", nodes.numel())
        meter.count("records_sampled", table.shape[0])
        return number, table


class EdgeHomes:
    """The machines at which sampled edges are stored, by edge id.

    An edge's features lie where it was sampled; an undirected edge between machines lies on both,
    and either will do.
    """

    def __init__(self) -> None:
        self._ids: list[Tensor] = []
        self._machines: list[Tensor] = []

    def forget(self) -> None:
        """Begin again, with the samples of another batch."""
        self._ids.clear()
        self._machines.clear()

    def note(self, eids: Tensor, machine: Tensor) -> None:
        """Edges int64[n], and where each was found."""
        self._ids.append(eids)
        self._machines.append(machine)

    def known(self) -> tuple[Tensor, Tensor]:
        """(edges int64[m] ascending, each once; machine of each)."""
        if not self._ids:
            return torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int64)
        ids, machine = torch.cat(self._ids), torch.cat(self._machines)
        found, place = torch.unique(ids, return_inverse=True)
        where = torch.full_like(found, torch.iinfo(torch.int64).max)
        return found, where.scatter_reduce_(0, place, machine, reduce="amin")


def _columns(asked: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    nodes, bits, positions, snapshot = (column.contiguous() for column in asked.unbind(1))
    return nodes, bits.view(torch.float64), positions, snapshot


def _sums(counts: Tensor, sizes: Sequence[int]) -> list[int]:
    """Sum of each piece of `counts`."""
    ends = torch.tensor([0, *accumulate(sizes)], device=counts.device)
    totals = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return totals[ends].diff().tolist()


def _reordered(place: Tensor, counts: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Groups of rows moved so that group i comes to `place[i]`."""
    order = torch.argsort(place)
    moved = counts[order]
    first = (counts.cumsum(0) - counts)[order]
    start = first - (moved.cumsum(0) - moved)
    take = torch.arange(rows.shape[0], device=rows.device) + start.repeat_interleave(moved)
    return moved, rows[take]


def _cut(
    sizes: list[int],
    targets: list[tuple[Tensor, Tensor, Tensor]],
    counts: Tensor,
    rows: Tensor,
    fanout: int,
) -> list[Sample]:
    """The samples of each snapshot."""
    found, at = [], 0
    for (nodes, times, positions), number in zip(targets, counts.split(sizes), strict=True):
        offsets = torch.cat([number.new_zeros(1), number.cumsum(0)])
        mine = rows if len(sizes) == 1 else rows[at : at + int(offsets[-1])]
        at += mine.shape[0]
        neighbours, eids, bits = (column.contiguous() for column in mine.unbind(1))
        times_of = bits.view(torch.float64)
        found.append(Sample(nodes, times, positions, offsets, neighbours, eids, times_of, fanout))
    return found
