"""PiPAD trained with the device's operators, played through on the host.

The arena gives the path that a device takes (wires that arrive, scattered gradients), the stand-in
runtime gives the device's kernels and bindings; only streams and memory are not CUDA's.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import torch
from tiny_data import serve, tiny_sequence, tiny_workload

from dgbench.kernels_cuda import build_info
from dgbench.kernels_cuda.variants import op as variants
from dgbench.systems.pipad import PipadSystem
from dgbench.systems.pipad.ladders import PUBLISHED, stage
from dgbench.systems.reference import ReferenceSystem

THREADED = {"spmm", "aggregate_parts", "aggregate_parts_scatter", "merge_exclusive",
            "aggregate_sliced", "scatter_sliced"}  # fmt: skip
SERVED = {*THREADED, "unpack_offsets", "count_slices", "fill_slices", "check_csr"}
"""The scans are left out: a device's forward pass records what the CPU computes again."""


class Shim:
    """The emulated device's functions under the calls for the CPU; others are the CPU's own.

    CPU calls end with the number of threads or with nothing where device calls end with a stream.
    """

    def __init__(self, device: ModuleType, host: ModuleType) -> None:
        self.device, self.host = device, host
        self.called: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        if name not in SERVED:
            return getattr(self.host, name)
        operator = getattr(self.device, name)

        def call(*arguments: Any) -> None:
            self.called.add(name)
            given = arguments[:-1] if name in THREADED else arguments
            clocks = (None,) if name == "aggregate_sliced" else ()
            operator(*given, *clocks, 0)

        return call


@pytest.fixture
def shim(monkeypatch, emulated_module) -> Shim:
    host = build_info.extension(torch.device("cpu"))
    found = Shim(emulated_module, host)
    monkeypatch.setattr(build_info, "_import", lambda name: (found, ""))
    return found


SETTINGS = [{}, *({name: False} for name in ("reuse", "overlap", "cache_rule", "sliced_csr"))]
CASES = [("tgcn_model", {}), *(("evolvegcn", one) for one in SETTINGS), ("mpnn_lstm", {}),
         ("mpnn_lstm", {"cache_rule": False})]  # fmt: skip


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("model", "switches"), CASES, ids=str)
def test_training_equals_the_reference(monkeypatch, shim, model, switches, weighted):
    serve(monkeypatch, tiny_sequence(nodes=14, edges=50, snapshots=7, weighted=weighted))
    task = tiny_workload(model=model, frame=4, loss_on="every")
    trainer = PipadSystem(s_per=3).open(task, switches={**switches, "arena": True})
    trainer.prepare()
    reference = ReferenceSystem(torch.float64).open(task)
    losses = [(trainer.step(i % 2), reference.step(i % 2)) for i in range(6)]
    assert all(a == pytest.approx(b, rel=1e-5) for a, b in losses)
    trainer.close()
    wanted = {"aggregate_parts", "spmm"} & shim.called
    assert wanted, shim.called
    if switches.get("sliced_csr", True):
        assert "unpack_offsets" in shim.called
    if model != "tgcn_model":
        assert "aggregate_parts_scatter" in shim.called
    if "cache_rule" in switches and model != "tgcn_model":
        assert "merge_exclusive" in shim.called


@pytest.mark.parametrize("weighted", [False, True])
def test_the_papers_kernel_in_training(monkeypatch, shim, weighted):
    monkeypatch.setattr(variants, "launches", lambda device: True)
    serve(monkeypatch, tiny_sequence(nodes=14, edges=50, snapshots=7, weighted=weighted))
    task = tiny_workload(model="evolvegcn", frame=4)
    switches = stage(PUBLISHED) | {"reuse": False, "arena": True}
    trainer = PipadSystem(s_per=2).open(task, switches=switches)
    trainer.prepare()
    reference = ReferenceSystem(torch.float64).open(task)
    for i in range(4):
        assert trainer.step(i % 2) == pytest.approx(reference.step(i % 2), rel=1e-5)
    trainer.close()
    assert {"aggregate_sliced", "scatter_sliced"} <= shim.called
    assert not shim.called & {"spmm", "aggregate_parts", "aggregate_parts_scatter"}
