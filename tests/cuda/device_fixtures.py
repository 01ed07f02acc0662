"""The compiled functions twice: played through on the host, and on a device where one is."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import emulator
import pytest
import torch
from hypothesis import HealthCheck
from torch import Tensor

from dgbench.kernels_cuda import _dispatch, build_info

ONE_PLACE = [HealthCheck.function_scoped_fixture]
"""Of tests that draw their examples for one place after the other."""
DEVICE = pytest.param("device", marks=pytest.mark.cuda)
PLACES = ["emulated", DEVICE]


class Logged(NamedTuple):
    """One call of the runtime, on the device that was current.

    Attributes:
        name: launch, copy, record, await, allocate; wait and free, which the host waits in.
        value: address of a copy's target or of an event; blocks of a launch.
    """

    name: str
    device: int
    stream: int
    value: int


class DeviceLog:
    """The calls in the file that `EMULATED_LOG` names, since it was opened or cleared."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def calls(self, *names: str) -> list[Logged]:
        """In order; all, or those of some names."""
        text = self._path.read_text() if self._path.exists() else ""
        lines = (line.split() for line in text.splitlines())
        found = [Logged(name, *map(int, numbers)) for name, *numbers in lines]
        return [one for one in found if not names or one.name in names]

    def clear(self) -> None:
        self._path.unlink(missing_ok=True)


@dataclass(frozen=True)
class Native:
    """The compiled functions, the device their arrays lie on and the stream they run on."""

    module: ModuleType
    device: str

    @property
    def own(self) -> bool:
        """True for the CPU's own functions."""
        return self.module is build_info.extension(torch.device("cpu"))

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


@pytest.fixture(params=["emulated", DEVICE])
def native(request) -> Native:
    """The kernels over a stand-in runtime (see emulator.py), and over the real one."""
    if request.param == "emulated":
        return Native(request.getfixturevalue("emulated_module"), "cpu")
    request.getfixturevalue("usable_device")
    return Native(build_info.extension(torch.device("cuda")), "cuda")


def open_place(kind: str, request: Any, monkeypatch: Any) -> Callable[..., Native]:
    """Let public operators of some modules work on the CPU, over the emulator, or on a device.

    Over the emulator memory that nothing was written to holds NaN, and what only the CPU has
    compiled is the CPU's. Functions by the name of an operator turn the arguments of a CPU's call
    into those of a device's.
    """
    own = Native(build_info.extension(torch.device("cpu")), "cpu")
    if kind == "device":
        request.getfixturevalue("usable_device")
        own = Native(build_info.extension(torch.device("cuda")), "cuda")
    if kind in ("cpu", "device"):
        return lambda *modules, **turned: own
    native = Native(request.getfixturevalue("emulated_module"), "cpu")

    def served(*modules: ModuleType, **turned: Callable[..., tuple[Any, ...]]) -> Native:
        def call(name: str, device: torch.device, *arguments: Any, **named: Any) -> None:
            if not hasattr(native.module, name):
                return _dispatch.call(name, device, *arguments, **named)
            given = turned[name](*arguments) if name in turned else arguments
            return native.call(name, *given, **named)

        for module in modules:
            monkeypatch.setattr(module, "extension", lambda device: native.module, raising=False)
            monkeypatch.setattr(module, "stream_of", lambda device: (0,), raising=False)
            monkeypatch.setattr(module, "call", call, raising=False)
        return native

    torch.use_deterministic_algorithms(True, warn_only=True)  # new tensors hold NaN
    request.addfinalizer(lambda: torch.use_deterministic_algorithms(False))
    return served


@pytest.fixture(params=["cpu", *PLACES])
def anywhere(request, monkeypatch) -> Callable[..., Native]:
    """Where public operators work, see `open_place`."""
    return open_place(request.param, request, monkeypatch)


@pytest.fixture
def place(anywhere, request) -> Native:
    """Place where the operators of the modules that a file of tests names `SERVED` work."""
    return anywhere(*getattr(request.module, "SERVED", ()))


@pytest.fixture
def serve(native, monkeypatch) -> Callable[..., str]:
    """Gives modules the emulated functions in place of a device's, and returns the device."""

    def served(*modules: ModuleType) -> str:
        for module in modules if native.device == "cpu" else ():
            monkeypatch.setattr(module, "extension", lambda device: native.module)
            monkeypatch.setattr(module, "stream_of", lambda device: (0,), raising=False)
        return native.device

    return served


@pytest.fixture
def log(request, tmp_path, monkeypatch) -> DeviceLog:
    """Launches and copies of the stand-in runtime; a real device keeps none."""
    if "native" in request.fixturenames and request.getfixturevalue("native").device != "cpu":
        pytest.skip("a real device keeps no log of launches")
    monkeypatch.setenv("EMULATED_LOG", str(tmp_path / "calls"))
    return DeviceLog(tmp_path / "calls")


@pytest.fixture
def emulate(monkeypatch) -> Callable[..., None]:
    """Sets what the stand-in runtime says of its device; a real one is as it is.

    Numbers by name: processors, the shared memory of a block in bytes, capability.
    """

    def settings(**numbers: int | None) -> None:
        for name, number in numbers.items():
            if number is not None:
                monkeypatch.setenv(f"EMULATED_{name.upper()}", str(number))

    return settings


@pytest.fixture(scope="session")
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
