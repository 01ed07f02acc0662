"""Contenders of PiPAD's graph layer: torch's CSR product as a contender of its own on a device."""

from __future__ import annotations

import pytest
import torch
from msgspec import structs
from pipad_rows import made, observation
from tiny_data import tiny_sequence

from dgbench.systems.base import RunContext
from dgbench.systems.pipad.experiments import fig11
from dgbench.systems.pipad.layers import (
    layer_deviation,
    pipad_layer,
    published_layer,
    single_layer,
    torch_layer,
)
from dgbench.systems.pipad.partitions import Partitions


def test_torchs_product_is_the_layer():
    csrs = tiny_sequence().topology[:3]
    x = torch.rand(3, csrs[0].num_rows, 5, generator=torch.Generator().manual_seed(1))
    weight = torch.rand(5, 4, generator=torch.Generator().manual_seed(2))
    found = torch_layer(csrs, x, weight)()
    assert layer_deviation(found, csrs, x, weight) < 1e-6
    assert layer_deviation([y + 1 for y in found], csrs, x, weight) > 1e-2


@pytest.mark.parametrize(("device", "raced"), [("cpu", False), ("cuda", True)])
def test_cusparse_is_raced_on_a_device(device, raced):
    cells = fig11.Fig11().cells("quick", device)
    mine = {c.group for c in cells if c.params["system"] == fig11.CUSPARSE}
    assert mine == ({c.group for c in cells if c.params["system"] == "pygt-g"} if raced else set())


def test_points_show_cusparse_where_it_ran():
    def rows(*systems):
        return [
            made(
                "fig11", {"dataset": "hepth", "dim": 16, "system": system},
                [observation("operation_time", seconds, samples=[seconds])], round=number,
            )
            for number in range(5)
            for system, seconds in zip(systems, (4.0, 2.0, 1.0, 3.0), strict=False)
        ]  # fmt: skip

    shown = {p["system"]: p.get("value") for p in fig11.layer_points(
        rows("pygt", "pygt-g", "pipad", fig11.CUSPARSE))}  # fmt: skip
    assert shown == {"pygt-g": pytest.approx(2), "pipad": pytest.approx(4),
                     fig11.CUSPARSE: pytest.approx(4 / 3)}  # fmt: skip
    assert fig11.CUSPARSE not in {p["system"] for p in fig11.layer_points(rows("pygt", "pipad"))}


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("spoiled", ["", "always", "after the first call"])
def test_layers_are_compared_after_timing_in_every_process(monkeypatch, number, spoiled):
    data = tiny_sequence(snapshots=9, features=4)
    right = fig11.single_layer
    calls = []

    def layer(*arguments):
        run = right(*arguments)

        def wrong():
            calls.append(1)
            off = spoiled == "always" or (spoiled and len(calls) > 1)
            return [1.5 * out if off else out for out in run()]

        return wrong

    monkeypatch.setattr(fig11, "open_graph", lambda graph, preset, feature_dim: data)
    monkeypatch.setattr(fig11, "single_layer", layer)
    cell = fig11.Fig11().cells("smoke", "cpu")[0]
    params = {"dataset": cell.params["dataset"], "dim": 4, "system": fig11.BARE}
    context = RunContext("cpu", "smoke", 1, budget_s=0.01, round=number)
    found = fig11.Fig11().run(structs.replace(cell, params=params), context)
    wrong = [check.part for check in found.checks if not check.passed]
    assert bool(wrong) == bool(spoiled)
    assert len(found.checks) == (2 if number == 1 else 1)


@pytest.mark.parametrize("layer", [published_layer, pipad_layer, single_layer])
def test_every_layer_of_ours_is_the_definition(layer):
    data = tiny_sequence(snapshots=9, features=4)
    times = range(1, 9)
    csrs = [data.topology[t] for t in times]
    x, weight = torch.randn(8, csrs[0].num_rows, 4), torch.randn(4, 6)
    run = layer(Partitions(data, norm="sym"), times, x, weight)
    for _ in range(2):  # what it keeps between calls is written anew
        assert layer_deviation(run(), csrs, x, weight) < 1e-6
