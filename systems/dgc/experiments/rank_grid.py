"""A grid of cells that train on several ranks."""

from __future__ import annotations

from dgbench.lab.grid import Grid
from dgbench.lab.ranks import devices_lacking
from dgbench.systems.base import Cell, Preset


class RankGrid(Grid):
    """A grid with an axis `ranks`, whose cells run where there is a device for each rank."""

    paper = "dgc"

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        return [
            # Contenders take turns inside a process, so that no process has a time of its own.
            self.cell(
                point, preset, interleaved=True, unavailable=devices_lacking(point["ranks"], device)
            )
            for point in self.points(preset, device)
        ]
