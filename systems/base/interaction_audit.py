"""Audited groups: drawn optimiser steps of timed turns on interactions, taken again in float64.

As `stream_audit`, for trainers with a state per vertex: in the first timed turn, and in later ones
ever more seldom, two groups in a row are drawn. The harness copies parameters, Adam's moments and
the rows of the vertices that a group names around it, outside of the clock. `InteractionTrainer`
takes the very group again in float64 from these, which `interaction_checks` holds against the plain
reference edge by edge: loss, updates, moments and the rows that are left are compared.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch import Tensor

from dgbench.lab.result_checks import ResultCheck, at_most, equal
from dgbench.runtime.schedule import DrawnRounds
from dgbench.runtime.threads import one_thread
from dgbench.runtime.touched import comparing
from dgbench.systems.base.audit import (
    Tensors,
    TrainingState,
    adam_checks,
    adam_numbers,
    clear_entries,
    copied_training,
    counted_steps,
    numbers_left,
)
from dgbench.systems.base.interaction_layout import Group
from dgbench.systems.base.interaction_trainer import InteractionTrainer
from dgbench.systems.base.interactions import InteractionData, InteractionWorkload
from dgbench.systems.base.moments import AdamMoments
from dgbench.systems.base.oracle import AGAINST, DRAWS, judge_retaken, moved_by_a_unit

IN_A_ROW: Final = 2
"""Groups that are audited one after the other."""
EXACT: Final = ("last_", "time_", "count_")
"""Beginnings of the names of columns that are times and counts, and are compared exactly."""

Taken = tuple[float, dict[str, Tensor], dict[str, Tensor]]
"""Loss, gradients by name, and rows by column that a group leaves."""


@dataclass(frozen=True, slots=True)
class GroupState:
    """Copy of what a group starts from or has left.

    Attributes:
        training: parameters and moments.
        rows: by column, of the vertices in question.
        ring: recent neighbours of these vertices, by column; empty without propagation.
        held: events that wait until their time is over.
    """

    training: TrainingState
    rows: dict[str, Tensor]
    ring: tuple[Tensor, ...]
    held: tuple[Tensor, ...]


@dataclass(slots=True)
class AuditedGroup:
    """An optimiser step and the states around it.

    Attributes:
        number: of the turn, from 0, and of the group in it.
        steps: int64[b] events of each of its steps. vertices: int64[U] that it reads or writes.
        loss: per event, before the update.
    """

    number: tuple[int, int]
    steps: Group
    vertices: Tensor
    before: GroupState
    after: GroupState | None = None
    loss: float = 0.0


class GroupAudit:
    """Watches the groups of a trainer, and copies its state around drawn ones.

    Args:
        trainer: no group was trained on yet.
        first: turns that are never audited, in the beginning.
        turns: drawn ones; by the operating system where it is None.

    Attributes:
        seconds: that the audit itself has taken so far, on no trainer's account.
    """

    def __init__(
        self, trainer: InteractionTrainer, *, first: int = 1, turns: DrawnRounds | None = None
    ) -> None:
        self._trainer, self._turns = trainer, turns or DrawnRounds(first)
        self._leaves = trainer.trained()
        self._moments: dict[str, AdamMoments] = {}
        self._columns = _columns(trainer)
        self._ring = () if trainer._push is None else tuple(trainer._push._columns())
        self._row = trainer.rows_of(torch.arange(trainer.data.events.num_nodes))
        self._turn, self._seen, self._left = -1, 0, 0
        self._begin = 0
        self._drawn = self._open = False
        self._expected: Tensor | None = None
        self._events: list[Tensor] = []
        self._compared = 0
        self._wrong: list[str] = []
        self.groups: list[AuditedGroup] = []
        self.seconds = 0.0

    # --- around turns and groups ------------------------------------------------------------------

    def begin(self, count: int, events: Tensor) -> None:
        """A turn begins.

        Args:
            count: groups of it. events: int64[n] that it trains on, in any order.
        """
        start = time.perf_counter()
        self._turn, self._seen = self._turn + 1, 0
        if not self._moments:
            self._moments = self._trainer.moments()
        going_on = self._left > 0  # a turn of one group is followed by another
        self._drawn = (self._turn in self._turns and count > 0) or going_on
        self._events = []
        if self._drawn:
            self._expected = events
            self._begin = 0 if going_on else self._turns.below(max(1, count - IN_A_ROW + 1))
            self._left = self._left or IN_A_ROW
        self.seconds += time.perf_counter() - start

    def before(self, group: Group) -> None:
        """A group is about to be trained on."""
        number, self._seen = self._seen, self._seen + 1
        if not self._drawn:
            return
        self._events += group
        if number < self._begin or not self._left:
            return
        self._synchronise()
        start = time.perf_counter()
        self._left, self._open = self._left - 1, True
        steps = [events.clone() for events in group]
        vertices = self._named(steps)
        self.groups.append(
            AuditedGroup((self._turn, number), steps, vertices, self._copy(vertices))
        )
        self.seconds += time.perf_counter() - start

    def after(self, loss: Tensor | float) -> None:
        """The group was trained on; its loss per event before the update."""
        if not self._open:
            return
        self._synchronise()
        start = time.perf_counter()
        self._open, one = False, self.groups[-1]
        one.after, one.loss = self._copy(one.vertices), float(loss)
        self.seconds += time.perf_counter() - start

    def end(self) -> None:
        """The turn has ended."""
        if not self._drawn:
            return
        start = time.perf_counter()
        assert self._expected is not None
        own = torch.cat([*self._events, self._expected[:0]]).sort().values
        self._compared += self._expected.numel()
        if not torch.equal(own, self._expected.sort().values):
            self._wrong.append(f"{own.numel():,} of {self._expected.numel():,} events")
        self.seconds += time.perf_counter() - start

    def _named(self, steps: Sequence[Tensor]) -> Tensor:
        """Vertices of this process that events and those which wait name, and the neighbours of
        their ends."""
        data, events = self._trainer.data, torch.cat([*steps, *self._trainer._held])
        ends = torch.cat([data.events.src[events], data.events.dst[events]])
        found = [ends, data.negative[events]]
        if self._ring:
            near = self._ring[0][ends.to(self._ring[0].device)].flatten().cpu().long()
            found.append(near[near >= 0])
        return self._trainer.owned(torch.cat(found).unique())

    def _copy(self, vertices: Tensor) -> GroupState:
        rows = self._row[vertices]
        return GroupState(
            copied_training(self._leaves, self._moments),
            {name: one[rows.to(one.device)].cpu() for name, one in self._columns.items()},
            tuple(one[vertices.to(one.device)].cpu() for one in self._ring),
            tuple(self._trainer._held),
        )

    def _synchronise(self) -> None:
        device = next(iter(self._leaves.values())).device
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    # --- afterwards -------------------------------------------------------------------------------

    @comparing()
    def checks(self, name: str, oracle: GroupOracle, *, again: bool = True) -> list[ResultCheck]:
        """Checks of the groups of a drawn turn against Adam, and of one of them in float64.

        Args:
            name: of the trainer in the row. oracle: of its task. again: take one again.
        """
        found = [self.cut(name)]
        first = self._turns.below(max(1, len(self.groups) // IN_A_ROW)) * IN_A_ROW
        whole_ones = [
            (one, one.after.training)
            for one in self.groups[first : first + IN_A_ROW] if one.after is not None
        ]  # fmt: skip
        if not whole_ones:
            return found
        with one_thread():
            steps = counted_steps((one.before.training, after) for one, after in whole_ones)
            found += adam_checks(steps, oracle.task.lr, seed=self._turns.seed, system=name)
            if again:
                one, _ = whole_ones[self._turns.below(len(whole_ones))]
                found += self._taken_again(name, oracle, one)
        return found

    def cut(self, name: str) -> ResultCheck:
        """A check that a trainer went through the events of drawn turns."""
        return at_most(
            "events", float(len(self._wrong)), 0.0, against="cut of the events", system=name,
            compared=self._compared,
            part=", ".join([name, *self._wrong[:1], f"drawn by {self._turns.seed}"]),
        )  # fmt: skip

    def _taken_again(self, name: str, oracle: GroupOracle, one: AuditedGroup) -> list[ResultCheck]:
        turn, number = one.number
        part = f"{name}, turn {turn}, step {number + 1}, drawn by {self._turns.seed}"
        return oracle.checks(one, part, system=name)


class GroupOracle:
    """The plain trainers that audited groups of one task are taken again by, in host memory.

    Args:
        task, data: of the trainers that are audited.
    """

    @comparing()
    def __init__(self, task: InteractionWorkload, data: InteractionData) -> None:
        self.task, self.data = task, data
        self._plain: dict[torch.dtype, InteractionTrainer] = {}

    def checks(self, one: AuditedGroup, part: str, *, system: str = "") -> list[ResultCheck]:
        """Checks of a whole group against itself in float64, from the state before it.

        Args:
            part: which group it is, in words. system: name of its trainer.
        """
        assert one.after is not None
        exact, lr = self.take(one), self.task.lr
        clear = clear_entries(exact[1], one.before.training)
        found = judge_retaken(
            _left(one, clear),
            _read(one, exact, clear, lr),
            (_read(one, taken, clear, lr) for taken in self.draws(one)),
            lambda: _read(one, self.take(one), clear, lr),
            {"against": AGAINST, "part": part, "system": system},
        )
        counts = [{key: rows[key].double() for key in rows if key.startswith(EXACT)}
                  for rows in (one.after.rows, exact[2])]  # fmt: skip
        same = equal("states", *counts, against=AGAINST)
        found.append(
            at_most("states", same.gap, 0.0, compared=same.compared, against=AGAINST, system=system,
                    part=f"{part}: times and counts of what was taken in and waits")
        )  # fmt: skip
        return found

    def take(self, one: AuditedGroup) -> Taken:
        """Loss, gradients and rows of a group, in float64."""
        return self._take(torch.float64, one, one.before.training.parameters)

    def draws(self, one: AuditedGroup) -> Iterator[Taken]:
        """The same in float32, rounded another way each time."""
        state, random_bits = one.before.training.parameters, torch.Generator().manual_seed(1)
        for draw in range(DRAWS):
            moved = state if draw == 0 else moved_by_a_unit(state, random_bits)
            yield self._take(torch.float32, one, moved)

    def _take(
        self, dtype: torch.dtype, one: AuditedGroup, parameters: Mapping[str, Tensor]
    ) -> Taken:
        if dtype not in self._plain:
            self._plain[dtype] = _CopiedState(self.task, self.data, dtype=dtype, order="intervals")
        plain, before = self._plain[dtype], one.before
        columns, ids = _columns(plain), one.vertices
        with torch.no_grad():
            for name, leaf in plain.model.named_parameters():
                leaf.copy_(parameters[name])
                leaf.grad = torch.zeros_like(leaf)
            for name, values in before.rows.items():
                columns[name][ids] = values.to(columns[name])
        if plain._push is not None:
            for column, values in zip(plain._push._columns(), before.ring, strict=True):
                column[ids] = values.to(column)
        plain._held = list(before.held)
        size = sum(events.numel() for events in one.steps)
        losses = [plain.run_step(events, scale=1 / size).loss for events in one.steps]
        gradients = {
            name: leaf.grad.clone() for name, leaf in plain.model.named_parameters()
            if leaf.grad is not None
        }  # fmt: skip
        rows = {name: column[ids].clone() for name, column in columns.items()}
        return float(torch.stack(losses).sum()) / size, gradients, rows


class _CopiedState(InteractionTrainer):
    """Plain trainer that has the state of the vertices which were copied into it, and no other."""

    def _fresh(self) -> tuple[Any, Any]:
        tables = self.model.new_state(1, dtype=self.dtype)
        count = self.data.events.num_nodes
        return tuple(
            replace(table, **{
                name: column.new_empty(count, *column.shape[1:])  # pages are had when written to
                for name, column in table.columns().items() if column is not None
            })
            for table in tables
        )  # fmt: skip


def _columns(trainer: Any) -> dict[str, Tensor]:
    """Columns of a trainer's state and of what waits, which steps write in place."""
    return {
        name: column
        for table in (trainer.vertices, trainer.pending)
        for name, column in table.columns().items()
        if column is not None
    }


def _read(one: AuditedGroup, taken: Taken, clear: Mapping[str, Tensor], lr: float) -> Tensors:
    """Numbers that a group leaves, from what a plain trainer took it to."""
    loss, gradients, rows = taken
    return adam_numbers(one.before.training, gradients, clear, lr) | _beside(loss, rows)


def _left(one: AuditedGroup, clear: Mapping[str, Tensor]) -> Tensors:
    """The same numbers as the trainer left them."""
    assert one.after is not None
    left = numbers_left(one.before.training, one.after.training, clear)
    return left | _beside(one.loss, one.after.rows)


def _beside(loss: float, rows: Mapping[str, Tensor]) -> Tensors:
    """Loss and states by kind of check."""
    return {
        "losses": {"": torch.tensor(loss, dtype=torch.float64)},
        "states": {name: one for name, one in rows.items() if not name.startswith(EXACT)},
    }
