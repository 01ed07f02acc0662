"""Parts of PiPAD's experiments: bytes of frames, settings of ablations, and graph layers."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from msgspec import structs
from tiny_data import TinySequence, tiny_sequence

from dgbench.kernels_cuda.csr import Csr
from dgbench.systems.base import RunContext, get_system
from dgbench.systems.base import data as workload_data
from dgbench.systems.pipad import ladders
from dgbench.systems.pipad.experiments import fig3, fig11
from dgbench.systems.pipad.layers import (
    layer_deviation,
    pipad_layer,
    published_layer,
    single_layer,
)
from dgbench.systems.pipad.partitions import Partitions


def test_the_bytes_of_a_frame_are_those_of_its_edges_and_features(monkeypatch) -> None:
    def csr(edges: int, values: bool) -> Csr:
        indptr = torch.tensor([0, edges, edges, edges])
        weights = torch.ones(edges) if values else None
        return Csr(indptr, torch.arange(edges, dtype=torch.int32), 3, weights)

    for weighted, each in ((False, 16), (True, 20)):
        topology = [csr(t % 3, weighted) for t in range(6)]
        data = TinySequence(topology, torch.zeros(6, 3, 2), torch.zeros(6, 3), 3)
        monkeypatch.setattr(workload_data, "load", lambda task, data=data: data)
        task = SimpleNamespace(frame=2, stride=1)
        wanted = [each * (t % 3 + (t + 1) % 3) + 2 * 4 * 3 * 2 for t in range(4)]
        assert fig3.frame_bytes(task) == wanted


@pytest.mark.parametrize("link", ladders.LADDERS)
def test_settings_turn_one_switch_at_a_time(link) -> None:
    known = {t.name for t in get_system("pipad").techniques}
    order = ladders.LADDERS[link]
    ladder = list(ladders.settings(link, "ladder").values())
    for before, after, name in zip(ladder, ladder[1:], order, strict=False):
        assert set(after) <= known
        assert {k for k in after if after[k] != before[k]} == {name}
        assert after[name]
    removed = ladders.settings(link, "removed")
    everything = removed[ladders.ON]
    assert removed[ladders.AGAIN] == everything
    for name, switches in list(removed.items())[2:]:
        assert {k for k in switches if switches[k] != everything[k]} == {name}
    for name in order:  # the top of the ladder has what `all on` has
        assert everything[name] == ladder[-1][name]
    for name, switches in list(ladders.settings(link, "alone").items())[1:]:
        assert {k for k in switches if switches[k] != ladder[0][k]} == {name}


def test_what_a_compiled_step_has_built_in_is_left_out_of_single_operators() -> None:
    assert ladders.everything("plain") == get_system("pipad").switches(None)
    found = ladders.ratios_of("removed", list(ladders.settings("plain", "removed")))
    assert {found[name] for name in ladders.BUILT_IN} == {
        (name, "compiled_step") for name in ladders.BUILT_IN
    }
    assert found["reuse"] == ("reuse", ladders.ON)


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
