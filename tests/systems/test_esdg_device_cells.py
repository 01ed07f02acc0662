"""Cells that ESDG's experiments plan for a CUDA device, by number of devices."""

from __future__ import annotations

import pytest

from dgbench.lab import ranks as lab_ranks
from dgbench.lab.ranks import devices_lacking
from dgbench.systems.base.registry import get_paper

PRESETS = ("smoke", "quick", "full", "paper")
HOST = "runs on ranks of CPUs"
"""Said where links between processes of CPUs are what is measured."""


def ranks_of(name: str, cell) -> int:
    """Ranks that a cell starts; 0 where it starts none."""
    if name == "ablation":
        return 2 if cell.params["kind"] == "reuse" else 0
    if cell.params.get("part") in ("walk", "parts", "shares", "counted") or name == "preparation":
        return 0
    return int(cell.params.get("ranks", 0))


@pytest.mark.parametrize("devices", [0, 1, 2, 4, 128])
@pytest.mark.parametrize("preset", PRESETS)
def test_cells_of_ranks_ask_for_a_device_each(monkeypatch, preset, devices):
    monkeypatch.setattr(lab_ranks, "gpu_count", lambda: devices)
    started = 0
    for experiment in get_paper("esdg").experiments:
        name = experiment.name
        assert not any(c.unavailable == HOST for c in experiment.cells(preset, "cpu"))
        for cell in experiment.cells(preset, "cuda"):
            ranks = ranks_of(name, cell)
            if cell.unavailable == HOST:
                assert name == "overlap" or cell.params["part"] == "links"
            elif cell.unavailable.startswith("needs "):
                assert ranks > devices, (name, cell.params)
                assert cell.unavailable == devices_lacking(ranks, "cuda")
            else:
                assert ranks <= devices, (name, cell.params)
                started += ranks > 0
    assert bool(started) == (devices > 0)
