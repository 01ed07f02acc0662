"""Plugins that return something other than a measurement."""

from __future__ import annotations

from typing import Any

import torch

from dgbench.systems.base import Cell, Measurement, RunContext
from tests.faults.plugins import harm
from tests.observed import told

NAN, INF = float("nan"), float("inf")


class Spiteful:
    """An object that fails whatever is done with it."""

    def item(self) -> Any:
        raise KeyError("not for you")

    def __getattr__(self, name: str) -> Any:
        raise ZeroDivisionError(f"not {name} either")


@harm("check", "not finite: loss")
def loss_nan(cell: Cell, context: RunContext) -> Measurement:
    return told({"loss": NAN})


@harm("check", "not finite: loss")
def loss_nan_tensor(cell: Cell, context: RunContext) -> Measurement:
    return told({"loss": torch.tensor(NAN)})


@harm("check", "not finite: step_time")
def endless_sample(cell: Cell, context: RunContext) -> Measurement:
    return told(samples=[1e-5, INF])


@harm("check", "deviation['output'] is nan")
def deviation_nan(cell: Cell, context: RunContext) -> Measurement:
    return Measurement(deviation={"output": NAN})


@harm("crash", "garbage")
def giant_value(cell: Cell, context: RunContext) -> Measurement:
    return told({"edges": 10**400})


@harm("crash", "garbage")
def giant_counter(cell: Cell, context: RunContext) -> Measurement:
    return told({"edges": 2**70})


@harm("crash", "garbage")
def half_a_count(cell: Cell, context: RunContext) -> Measurement:
    return told({"edges": 1.5})


@harm("crash", "bytes, at most 1,048,576 are kept")
def a_million_samples(cell: Cell, context: RunContext) -> Measurement:
    return told(samples=[1e-9 + i * 1e-16 for i in range(1_000_000)])


@harm("crash", "bytes, at most 1,048,576 are kept")
def a_hundred_thousand_notes(cell: Cell, context: RunContext) -> Measurement:
    return Measurement(notes=["this is fine"] * 100_000)


@harm("crash", "bytes, at most 1,048,576 are kept")
def a_note_of_fifty_megabytes(cell: Cell, context: RunContext) -> Measurement:
    return Measurement(notes=["x" * 50_000_000])


@harm("crash", "garbage")
def nested_for_ever(cell: Cell, context: RunContext) -> Measurement:
    data: dict[str, Any] = {}
    data["again"] = data
    return Measurement(data=data)


@harm("crash", "garbage")
def nested_deeply(cell: Cell, context: RunContext) -> Measurement:
    data: dict[str, Any] = {}
    for _ in range(100_000):
        data = {"in": data}
    return Measurement(data=data)


@harm("crash", "garbage")
def half_a_letter_in_a_note(cell: Cell, context: RunContext) -> Measurement:
    return Measurement(notes=["half a letter: \ud800"])


@harm("crash", "has the name")
def a_name_that_rings(cell: Cell, context: RunContext) -> Measurement:
    return told({"\x07\x1b[31mred": 1.0})


@harm("crash", "garbage")
def names_that_are_numbers(cell: Cell, context: RunContext) -> Measurement:
    return told({1: 1.0})


@harm("crash", "garbage")
def nothing_where_a_list_belongs(cell: Cell, context: RunContext) -> Measurement:
    return told(samples=None)


@harm("crash", "garbage")
def text_where_a_number_belongs(cell: Cell, context: RunContext) -> Measurement:
    return told({"loss": "low"})


@harm("crash", "garbage")
def an_object_in_the_data(cell: Cell, context: RunContext) -> Measurement:
    return Measurement(data={"of": object()})


@harm("crash", "garbage")
def a_spiteful_value(cell: Cell, context: RunContext) -> Measurement:
    return told({"loss": Spiteful()})


@harm("crash", "garbage")
def a_whole_tensor(cell: Cell, context: RunContext) -> Measurement:
    return told({"loss": torch.zeros(3)})


@harm("crash", "StructMeta instead of a Measurement")
def the_class_itself(cell: Cell, context: RunContext) -> Any:
    return Measurement


@harm("crash", "NoneType instead of a Measurement")
def nothing(cell: Cell, context: RunContext) -> Any:
    return None


@harm("crash", "generator instead of a Measurement")
def a_generator(cell: Cell, context: RunContext) -> Any:
    yield Measurement()


@harm("crash", "garbage")
def more_than_was_asked_for(cell: Cell, context: RunContext) -> Measurement:
    class More(Measurement):
        more: int = 1

    return More()


@harm("ok", "red and plain")
def colours_in_a_note(cell: Cell, context: RunContext) -> Measurement:
    return Measurement(notes=["\x1b[31mred\x1b[0m and\x1b]0;title\x07 plain\x00\x08"])


@harm("crash", "invalid literal")
def a_counter_that_counts_words(cell: Cell, context: RunContext) -> Measurement:
    context.meter.counters["edges"] = "many"  # type: ignore[assignment]
    return Measurement()
