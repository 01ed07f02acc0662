"""Training on interactions, one state per vertex: the workload and its data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
import numpy as np
import torch
from torch import Tensor

from dgbench.models.streaming import DECAYS, INTERACTION_MODELS
from dgbench.models.streaming.dygnn import ACTIVATIONS
from dgbench.runtime.errors import InvalidInputError
from dgbench.runtime.fields import check_choices, check_counts
from dgbench.systems.base.data import describe
from dgbench.systems.base.stream_data import (
    check_parts,
    drawn_ends,
    first_events,
    mixed,
    part_ends,
)

if TYPE_CHECKING:
    from dgbench.datasets import EventStream

TASKS: Final = ("link", "classify")
AGGREGATES: Final = ("mean", "last")
TEST_VERTICES: Final = 0.1
"""Share of the labelled vertices that accuracy is measured on (section 6.4: drawn at random)."""
CLASSES: Final = 4
"""Quartiles of activity: where vertices have no held labels, as the paper names none."""
_NEGATIVE, _HELD_OUT = 11, 12


class InteractionWorkload(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A task on a stream of interactions for a network with a state per vertex.

    Attributes:
        dataset: name of a `DatasetCard`.
        model: `dygnn` or `jodie`.
        source: `real`, `twin`, or `auto` (real where it can be had, else the twin).
        scale: size factor of a twin.
        seed: seeds parameters, first states, negatives, held-out vertices, samples and twins.
        events: how many are kept, the first ones; None keeps all.
        task: `link` (an edge against a pair that is none) or `classify` (the class of a vertex).
        hidden_dim: floats of a state and of an embedding.
        propagation: neighbours of the ends of an edge take in a part of it (DyGNN; not in T-GCN).
        activation: of Interact, `tanh` or `sigmoid`.
        decay: of the short-term memory, `log`, `exp` or `inverse`.
        aggregate: how several interactions of a vertex in an interval go in: `mean` or `last`.
        batch: events of an optimiser step where a system trains edge by edge.
        intervals: into which a system that relaxes order cuts the time trained on; None lets it
            choose.
        lr: learning rate of Adam.
        share: of the edges that a system that samples trains on, in (0, 1].
        strict_time: what is scored at a time never rests on other events of that time: all of them
            are scored from the state before it. False: events of one time follow each other in the
            order of the file.
    """

    dataset: str
    model: Literal["dygnn", "jodie"] = "dygnn"
    source: Literal["auto", "real", "twin"] = "auto"
    scale: float = 1.0
    seed: int = 1
    events: int | None = None
    task: Literal["link", "classify"] = "link"
    hidden_dim: int = 64
    propagation: bool = False
    activation: Literal["tanh", "sigmoid"] = "tanh"
    decay: Literal["log", "exp", "inverse"] = "log"
    aggregate: Literal["mean", "last"] = "mean"
    batch: int = 200
    intervals: int | None = None
    lr: float = 1e-3
    share: float = 0.5
    strict_time: bool = True

    def check(self) -> InteractionWorkload:
        """Return self; raise InvalidInputError or UnknownKeyError naming a field out of range."""
        words = {
            "model": INTERACTION_MODELS,
            "task": TASKS,
            "activation": ACTIVATIONS,
            "decay": DECAYS,
            "aggregate": AGGREGATES,
        }
        check_choices(self, words)
        check_counts(self, ("hidden_dim", "batch"), optional=("events", "intervals"))
        if not 0 < self.share <= 1:
            raise InvalidInputError(f"share is {self.share!r}; a share in (0, 1] is allowed")
        if not self.lr > 0:
            raise InvalidInputError(f"lr is {self.lr!r}; a number > 0 is allowed")
        return self


@dataclass(frozen=True, slots=True, eq=False)
class InteractionData:
    """The data of a workload.

    Attributes:
        events: in time order; an event's `eid` is its ordinal.
        train_end, validate_end: events [0, train_end) are trained on, [train_end, validate_end)
            choose settings, the others test.
        unit: mean time between two interactions of a vertex that has any, > 0, in the events
            trained on: ages count in it.
        negative: int64[E], a vertex that stands in for each event's destination.
        classes: int64[N], or None without the task; -1 where a vertex has none.
        held_out: bool[N], vertices whose class is never trained on; None without the task.
        num_classes: 0 without the task.
        notes: sentences for rows.
    """

    events: EventStream
    train_end: int
    validate_end: int
    unit: float
    negative: Tensor
    classes: Tensor | None = None
    held_out: Tensor | None = None
    num_classes: int = 0
    notes: tuple[str, ...] = ()

    def describe(self) -> dict[str, Any]:
        """The `data` field of a measurement."""
        found = describe(self.events)  # type: ignore[arg-type]
        return found | {"note": "; ".join(filter(None, (found["note"], *self.notes)))}


def load_interactions(workload: InteractionWorkload) -> InteractionData:
    """The events of a workload, split, with negatives and classes.

    Raises:
        UnknownKeyError, InvalidInputError: a field out of range.
        MissingDataError, DataError: from the datasets floor.
        UnsupportedError: a part of the stream is empty.
    """
    from dgbench import datasets

    workload.check()
    events = datasets.open_events(workload.dataset, workload.source, workload.scale, workload.seed)
    data = interaction_data(events, workload)
    check_parts(data.train_end, data.validate_end, len(data.events))
    return data


def interaction_data(events: EventStream, workload: InteractionWorkload) -> InteractionData:
    """The first events of a stream that a workload keeps, split by time, with what scoring needs.

    Raises:
        InvalidInputError: no events.
    """
    events, destinations = first_events(events, workload.events)
    if len(events) == 0:
        raise InvalidInputError(f"'{workload.dataset}' has no events, at least 1 is needed")
    events = replace(events, eid=torch.arange(len(events)), node_feat=None)
    train_end, validate_end = part_ends(events)
    notes: list[str] = []
    classes = held_out = None
    if workload.task == "classify":
        classes = activity_classes(events)
        held_out = held_out_vertices(workload.seed, events.num_nodes)
        notes.append(
            f"classes are quartiles of activity, {TEST_VERTICES:.0%} of the vertices held out"
        )
    return InteractionData(
        events,
        train_end,
        validate_end,
        time_unit(events.select(0, train_end)) if train_end else 1.0,
        negative_ends(workload.seed, events, destinations),
        classes,
        held_out,
        0 if classes is None else CLASSES,
        tuple(notes),
    )


def time_unit(events: EventStream) -> float:
    """Mean time between two interactions of a vertex: span x active vertices / (2 events)."""
    first, last = events.span
    active = torch.unique(torch.cat([events.src, events.dst])).numel()
    unit = (last - first) * active / (2 * len(events))
    return unit if unit > 0 else 1.0


def negative_ends(seed: int, events: EventStream, destinations: Tensor | None) -> Tensor:
    """int64[E]: uniform over `destinations`, see `StreamData.destinations`.

    A function of seed and ordinal alone; as usual one may hit the true destination.
    """
    return drawn_ends(mixed(seed, _NEGATIVE, np.arange(len(events))), events, destinations)


def activity_classes(events: EventStream) -> Tensor:
    """int64[N]: the quartile of a vertex's number of events among active vertices; -1 for none.

    Equal numbers share a class, so that classes differ in size where many vertices occur once.
    """
    ends = torch.cat([events.src, events.dst])
    count = torch.bincount(ends, minlength=events.num_nodes)
    active = count > 0
    cuts = torch.quantile(
        count[active].to(torch.float64).sort().values[:: max(1, int(active.sum()) // 1_000_000)],
        torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64),
    )
    found = torch.searchsorted(cuts, count.to(torch.float64))
    return torch.where(active, found, -1)


def held_out_vertices(seed: int, num_nodes: int) -> Tensor:
    """bool[N]: a tenth of the vertices, a function of seed and id alone."""
    drawn = mixed(seed, _HELD_OUT, np.arange(num_nodes)).astype(np.float64) / 2.0**63
    return torch.from_numpy(drawn < TEST_VERTICES)
