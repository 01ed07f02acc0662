"""Grids: experiments whose cells are a product of axes, with the same fields for all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product
from typing import Any, ClassVar

from dgbench.lab import metrics
from dgbench.lab.experiment import Cell, Experiment, FigureSpec, Preset


def by_preset(table: Any, preset: str) -> Any:
    """The entry of a preset, of `None` where it is not named; a plain value stands for all."""
    if not isinstance(table, Mapping):
        return table
    return table[preset] if preset in table else table[None]


class Grid(Experiment):
    """An experiment of cells that are a product of axes; a declared one needs only `run`.

    Attributes:
        axes: param -> its values, or preset -> its values (`None` for presets not named).
        fixed: params that all cells have, behind those of the axes.
        group: format of params that names a cell's group.
        interleaved: whether the contenders of a cell take turns inside its process.
        repeats, timeout_s: numbers, or by preset.
        charts: figures.
    """

    axes: ClassVar[Mapping[str, Any]] = {}
    fixed: ClassVar[Mapping[str, Any]] = {}
    group: ClassVar[str] = "{dataset}"
    interleaved: ClassVar[bool] = False
    repeats: ClassVar[Any] = 1
    timeout_s: ClassVar[Any] = 60.0
    charts: ClassVar[tuple[FigureSpec, ...]] = ()

    def __init_subclass__(cls) -> None:
        """Raise UnknownKeyError where a param is no registered dimension, naming the nearest."""
        super().__init_subclass__()
        for name in (*cls.axes, *cls.fixed):
            metrics.dimension(name)

    def points(self, preset: Preset, device: str) -> Iterable[dict[str, Any]]:
        """Params of all cells of a preset, in their order."""
        values = (by_preset(one, preset) for one in self.axes.values())
        return (dict(zip(self.axes, each, strict=True)) for each in product(*values))

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        return [self.cell(point, preset) for point in self.points(preset, device)]

    def cell(self, params: Mapping[str, Any], preset: Preset, **fields: Any) -> Cell:
        """A cell with these params; `fields` stand for those of the class."""
        group = fields.pop("group", "") or self.group.format(**params)
        fields.setdefault("interleaved", self.interleaved)
        fields.setdefault("repeats", by_preset(self.repeats, preset))
        fields.setdefault("timeout_s", by_preset(self.timeout_s, preset))
        return self.cell_of({**params, **self.fixed}, group, **fields)

    def figures(self) -> list[FigureSpec]:
        return list(self.charts)


class TrainingRace(Grid):
    """A grid of workloads on which systems train; each process compares what it timed.

    Attributes:
        watched: workload whose contenders also run with instruments; the first one of a preset
            that has not got it.
    """

    group = "{dataset}/{model}"
    watched: ClassVar[Mapping[str, Any]] = {}

    def contenders(self, preset: Preset, device: str) -> Iterable[str]:
        """Systems that race."""
        raise NotImplementedError

    def limit_s(self, system: str, preset: Preset) -> float:
        """Limit of a process, in seconds."""
        return by_preset(self.timeout_s, preset)

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        points = list(self.points(preset, device))
        watched = self.watched if self.watched in points else points[0]
        return [
            self.cell(
                {**point, "system": system}, preset,
                timeout_s=self.limit_s(system, preset), phases=point == watched,
            )
            for point in points
            for system in self.contenders(preset, device)
        ]  # fmt: skip
