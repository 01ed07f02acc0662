"""Recount of what a stream trainer must have done, from the events and the workload alone.

Oracles of streams share `StreamTrainer` with what they judge: batches, negatives, memory. Here each
of them is counted once more by other code: how many batches were trained on, when each vertex was
written to last, which events and negatives a batch asks for, and that no neighbour is from its
root's time or later.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from torch import Tensor

from dgbench.lab.result_checks import ResultCheck, at_most, equal
from dgbench.runtime.touched import comparing

if TYPE_CHECKING:
    from dgbench.systems.base.stream import StreamTrainer
    from dgbench.systems.base.stream_data import StreamData, StreamWorkload

AGAINST: Final = "recount of the events"
COUNTED: Final = 32
"""Roots of a batch whose neighbours are counted in all events, at most."""
READ: Final = 10**8
"""Events that are read for it in a batch, of at least one root."""
_WORD: Final = 2**64 - 1


@comparing()
def recount_training(
    name: str,
    trainer: StreamTrainer,
    task: StreamWorkload,
    rounds: Sequence[tuple[int, int]],
    epochs: int,
) -> list[ResultCheck]:
    """Checks that a trainer has taken all steps and written all memories, in the state it is in.

    Args:
        name: of the trainer in the row.
        trainer: trained on nothing else, every epoch of a round from the same memories.
        task: of the trainer.
        rounds: first event and the one after the last of each round, in order.
        epochs: of every round.
    """
    data, about = trainer.data, {"against": AGAINST}
    times = data.events.t.numpy()
    steps = sum(
        len(batch_ends(task, times[first:last], epoch))
        for first, last in rounds for epoch in range(epochs)
    )  # fmt: skip
    states = trainer.training_state()["optimiser"]["state"].values()
    taken_steps = int(max((float(one["step"]) for one in states), default=0.0))
    checks = [
        at_most(
            "steps", abs(taken_steps - steps) / max(1, steps), 0.0, compared=steps, **about,
            part=f"{name}, {taken_steps:,} of {steps:,} optimiser steps",
        )
    ]  # fmt: skip
    state = trainer.memory_state()
    if state is not None:
        own = {part: getattr(state.rows, part).cpu() for part in ("updated", "mail_time")}
        kept = written(task, data, rounds, epochs)
        count = int(kept["mail_time"].isfinite().sum())
        seen = int(own["mail_time"].isfinite().sum())
        one = equal("memories", own, kept, **about)
        part = f"{name}, {seen:,} of {count:,} vertices written to"
        checks.append(
            at_most("memories", one.gap, 0.0, compared=one.compared, part=part, **about)
        )  # fmt: skip
    return checks


@comparing()
def recount_batches(
    name: str, trainer: StreamTrainer, task: StreamWorkload, *, timed: bool = True
) -> list[ResultCheck]:
    """Checks of what a trainer asks its graph for while it trains on the last events once more.

    Args:
        name: of the trainer in the row.
        trainer: moves on by the steps of two batches and an event.
        task: of the trainer.
        timed: whether its sampler looks at times; else neighbours are not checked.

    Returns:
        None of a trainer whose steps are `recorded`.
    """
    if trainer.recorded:
        return []
    data, last = trainer.data, trainer.inserted
    first = max(0, last - 2 * task.batch - 1)
    times = data.events.t.numpy()
    access = trainer.access
    trainer.access = seen = _SeenAccess(access)
    try:
        trainer.train(first, last)
    finally:
        trainer.access = access
    ends = batch_ends(task, times[first:last], 0)
    sizes = [len(call.nodes) // 3 for call in seen.calls]
    thirds = [call.nodes.view(3, -1) for call in seen.calls]
    own = torch.cat([torch.zeros(3, 0, dtype=torch.int64), *thirds], dim=1)
    root_times = torch.cat([*(call.times for call in seen.calls), torch.zeros(0).double()])
    columns = torch.stack([data.events.src, data.events.dst])[:, first:last]
    count, trained = last - first, own.shape[1]
    same = trained == count and bool((own[:2] == columns).all())
    again = data.events.t[first:last]
    whole = [again[a:b].repeat(3) for a, b in zip([0, *ends], ends, strict=False)]
    on_time = (
        same and sizes == np.diff([0, *ends]).tolist() and torch.equal(root_times, torch.cat(whole))
    )
    expected = torch.tensor(_negatives(task, data, first, last))
    missed = count if trained != count else int((own[2] != expected).sum())
    distinct = own[2].unique().numel(), expected.unique().numel()
    about: dict[str, Any] = {"against": AGAINST, "tolerance": 0.0, "compared": count}
    checks = [
        at_most("events", 0.0 if same else max(1, abs(count - trained)) / count,
            part=f"{name}, trained on {trained:,} of {count:,} events", **about),
        at_most("batches", 0.0 if on_time else 1.0,
            part=f"{name}, {len(sizes)} of {len(ends)} batches", **about),
        at_most("negatives", missed / count,
            part=f"{name}, {distinct[0]:,} of {distinct[1]:,} distinct ones", **about),
    ]  # fmt: skip
    if timed:
        wrong, compared = 0, 0
        for call in seen.calls:
            bad, some = _wrong_neighbours(call, task, data, last)
            wrong, compared = wrong + bad, compared + some
        checks.append(
            at_most("neighbours", wrong / max(1, compared), 0.0, against=AGAINST,
                compared=compared, part=f"{name}, before their root's time")
        )  # fmt: skip
    return checks


# --- batches and memory ---------------------------------------------------------------------------


def batch_ends(task: StreamWorkload, times: np.ndarray, epoch: int) -> list[int]:
    """Places behind the last event of each batch of events at float64[n] times of an epoch."""
    size, count = task.batch, len(times)
    length = size
    if task.chunks > 1:
        length = _bits(task.seed, 1, epoch) % task.chunks * (size // task.chunks) or size
    ends: list[int] = []
    begin = 0
    while begin < count:
        full = begin + length
        end = min(full, count)
        if task.model == "tgn" and task.strict_time:
            end = int(np.searchsorted(times, times[end - 1], "right"))
        if 2 * (end - full) >= size:
            parts = max(1, round((end - full) / size))
            ends += [full + (end - full) * part // parts for part in range(parts + 1)]
        else:
            ends.append(end)
        begin, length = end, size
    return ends


def written(
    task: StreamWorkload, data: StreamData, rounds: Sequence[tuple[int, int]], epochs: int
) -> dict[str, Tensor]:
    """float64[N] times of what each vertex took in and of the message that waits, after rounds.

    Only the last epoch of a round is left; what is written at a time of which more events follow
    waits until it is over.
    """
    t = data.events.t.numpy()
    ends = torch.stack([data.events.src, data.events.dst]).numpy()
    updated = np.full(data.events.num_nodes, t[0])
    mail = np.full(data.events.num_nodes, -math.inf)
    waiting: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    waits_for = math.nan
    for first, last in rounds:
        begin = first
        for end in batch_ends(task, t[first:last], epochs - 1):
            batch, begin = slice(begin, first + end), first + end
            if waiting and waits_for != t[batch.start]:
                waiting = _write(waiting, updated, mail)
            backwards = ends[:, batch].T[::-1].ravel()
            ids, place = np.unique(backwards, return_index=True)  # of each its last event
            latest = t[batch][::-1][place // 2]
            newer = latest >= mail[ids]
            ids, latest = ids[newer], latest[newer]
            took_in = np.where(np.isfinite(mail[ids]), mail[ids], updated[ids])
            waiting.append((ids, took_in, latest))
            time, after = t[begin - 1], begin < len(t) and t[begin] == t[begin - 1]
            if task.strict_time and after:
                waits_for = time
            else:
                waiting = _write(waiting, updated, mail)
    return {"updated": torch.from_numpy(updated), "mail_time": torch.from_numpy(mail)}


def _write(
    waiting: list[tuple[np.ndarray, np.ndarray, np.ndarray]], updated: np.ndarray, mail: np.ndarray
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    for ids, took_in, latest in waiting:
        updated[ids], mail[ids] = took_in, latest
    return []


def _negatives(task: StreamWorkload, data: StreamData, first: int, last: int) -> list[int]:
    """The vertex that stands in for the destination of each event."""
    low = data.events.num_src or 0
    some = list(range(low, data.events.num_nodes))
    if data.destinations is not None:  # a prefix has those that occur in it
        some = sorted(set(data.events.dst.tolist()))
    return [some[_bits(task.seed, 0, k) % len(some)] for k in range(first, last)]


def _bits(seed: int, stream: int, number: int) -> int:
    """63 bits by SplitMix64 of a seed, a stream and a number."""
    x = number
    for word in (seed, stream):
        x = x + 0x9E3779B97F4A7C15 * (word % 2**62 + 1) & _WORD
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & _WORD
        x = (x ^ x >> 27) * 0x94D049BB133111EB & _WORD
        x ^= x >> 31
    return x >> 1


# --- neighbours -----------------------------------------------------------------------------------


class _Call:
    """Roots of one call of a sampler, and what it answered."""

    def __init__(self, nodes: Tensor, times: Tensor, hops: Any) -> None:
        self.nodes, self.times, self.hops = nodes, times, hops


class _SeenAccess:
    """A `GraphAccess` that keeps what each call of `sample` was asked and answered."""

    def __init__(self, access: Any) -> None:
        self._access = access
        self.calls: list[_Call] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._access, name)

    def sample(self, nodes: Tensor, times: Tensor, **how: Any) -> Any:
        """As of every `GraphAccess`."""
        hops = self._access.sample(nodes, times, **how)
        self.calls.append(_Call(nodes.cpu(), times.cpu(), hops))
        return hops


def _wrong_neighbours(
    call: _Call, task: StreamWorkload, data: StreamData, inserted: int
) -> tuple[int, int]:
    """Neighbours of a call that cannot be, and how many there are with the roots counted."""
    window, wrong, compared = task.window, 0, 0
    by_root = task.model == "dysat" if task.prop_time is None else task.prop_time
    for snapshot, hops in enumerate(call.hops):
        targets = call.nodes
        times = call.times - snapshot * window if window and snapshot else call.times
        for number, hop in enumerate(hops):
            offsets = hop.offsets.cpu()
            size = int(offsets[-1])
            near, eids, when = (x.cpu()[:size] for x in (hop.neighbours, hop.eids, hop.edge_times))
            counts = offsets.diff()[: targets.numel()]
            hop_roots, hop_times = (x.cpu()[: targets.numel()] for x in (hop.nodes, hop.times))
            if int(counts.sum()) != size or bool((eids >= inserted).any()):
                return 1, 1
            wrong += int(((hop_roots != targets) | (hop_times != times)).sum())
            own, own_times = targets.repeat_interleave(counts), times.repeat_interleave(counts)
            src, dst = data.events.src[eids], data.events.dst[eids]
            right = (src == own) & (dst == near)
            if task.undirected:
                right |= (dst == own) & (src == near)
            right &= data.events.t[eids] == when
            right &= (when <= own_times) if task.closed else (when < own_times)
            if window is not None:
                right &= when >= own_times - window
            wrong += int((~right).sum())
            compared += size
            if number == 0:
                wrong += _wrong_roots(targets, times, offsets, eids, task, data, inserted)
                compared += min(COUNTED, targets.numel())
            targets = torch.cat([targets, near])
            times = torch.cat([times, own_times if by_root else when])
    return wrong, compared


def _wrong_roots(
    roots: Tensor, times: Tensor, offsets: Tensor, eids: Tensor, task: StreamWorkload,
    data: StreamData, inserted: int,
) -> int:  # fmt: skip
    """Roots, of some spread over all, whose neighbours are not as many or not the newest."""
    events, fanout, wrong = data.events, task.fanouts[0], 0
    src, dst, t = (x[:inserted] for x in (events.src, events.dst, events.t))
    count = min(COUNTED, roots.numel(), max(1, READ // max(1, inserted)))
    for root in np.linspace(0, roots.numel() - 1, count).astype(int).tolist():
        time, vertex = times[root], roots[root]
        before = t <= time if task.closed else t < time
        if task.window is not None:
            before &= t >= time - task.window
        seen = (before & (src == vertex)).nonzero().squeeze(1)
        if task.undirected:
            seen = torch.cat([seen, (before & (dst == vertex)).nonzero().squeeze(1)]).sort().values
        own = eids[offsets[root] : offsets[root + 1]].sort().values
        if task.sampling == "recent":
            wrong += not torch.equal(own, seen[-fanout:])
        else:
            wrong += own.numel() != min(fanout, seen.numel())
    return wrong
