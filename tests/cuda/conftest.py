"""The compiled functions twice: played through on the host, and on a device where one is."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import emulator
import pytest
import torch
from device_log import DeviceLog
from torch import Tensor

from dgbench.kernels_cuda import build_info
from dgbench.runtime.precision import plain_products

# Whole systems are tested on the tiny snapshots of their own tests.
sys.path.append(str(Path(__file__).resolve().parents[1] / "systems"))


@dataclass(frozen=True)
class Native:
    """The compiled functions, the device their arrays lie on and the stream they run on."""

    module: ModuleType
    device: str

    def call(self, name: str, *arguments, **named):
        stream = torch.cuda.current_stream().cuda_stream if self.device == "cuda" else 0
        getattr(self.module, name)(*arguments, stream, **named)

    def put(self, array, dtype: torch.dtype | None = None) -> Tensor:
        return torch.as_tensor(array, dtype=dtype).to(self.device)

    def poisoned(self, *shape: int) -> Tensor:
        return torch.full(shape, math.nan, device=self.device)


@pytest.fixture(scope="session")
def emulated_module() -> ModuleType:
    if reason := emulator.missing():
        pytest.skip(reason)
    return emulator.build()


@pytest.fixture(params=["emulated", pytest.param("device", marks=pytest.mark.cuda)])
def native(request) -> Native:
    """The kernels over a stand-in runtime (see emulator.py), and over the real one."""
    if request.param == "emulated":
        return Native(request.getfixturevalue("emulated_module"), "cpu")
    request.getfixturevalue("usable_device")
    return Native(build_info.extension(torch.device("cuda")), "cuda")


@pytest.fixture
def log(native, tmp_path, monkeypatch) -> DeviceLog:
    """Launches and copies of the stand-in runtime; a real device keeps none."""
    if native.device != "cpu":
        pytest.skip("a real device keeps no log of launches")
    monkeypatch.setenv("EMULATED_LOG", str(tmp_path / "calls"))
    return DeviceLog(tmp_path / "calls")


@pytest.fixture
def emulate(native, monkeypatch) -> Callable[..., None]:
    """Sets what the stand-in runtime says of its device; a real one is as it is.

    Numbers by name: processors, the shared memory of a block in bytes, capability.
    """

    def settings(**numbers: int | None) -> None:
        for name, number in numbers.items():
            if number is not None and native.device == "cpu":
                monkeypatch.setenv(f"EMULATED_{name.upper()}", str(number))

    return settings


@pytest.fixture(params=["forward", "reverse"])
def order(request, monkeypatch) -> None:
    """Threads of an emulated block from the first to the last, or back.

    A missing barrier changes the result.
    """
    if request.param == "reverse":
        monkeypatch.setenv("EMULATED_ORDER", "reverse")


@pytest.fixture
def usable_device() -> None:
    """Skip the test where the operators have no CUDA device, and say why."""
    cuda = build_info.build_info()["cuda"]
    if not cuda["usable"]:
        pytest.skip(f"no CUDA device for the operators: {cuda['reason']}")


@pytest.fixture
def graphed(usable_device) -> Callable[..., tuple[list[Tensor], list[Tensor]]]:
    """Runs work on a stream of its own, records it and replays it; the results of both.

    A capture fails on any hidden synchronisation, allocation or use of the default stream.
    """

    def replayed(work: Callable[[], list[Tensor]]) -> tuple[list[Tensor], list[Tensor]]:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            expected = work()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            results = work()
        for result in results:
            result.fill_(math.nan)
        graph.replay()
        torch.cuda.synchronize()
        return expected, results

    return replayed


@pytest.fixture(params=["host", pytest.param("cuda", marks=pytest.mark.cuda)])
def where(request) -> str:
    """`host` or `cuda`, whose products are then in full single precision, as the reference's."""
    if request.param == "cuda":
        request.getfixturevalue("usable_device")
        plain_products()
    return request.param


@pytest.fixture
def place(where: str) -> str:
    """Link that inputs travel over: to an arena in memory, or to a device."""
    return "arena" if where == "host" else where
