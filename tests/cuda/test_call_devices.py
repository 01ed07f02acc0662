"""On which device and in which order compiled functions work, by their calls of the runtime."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.dlpack import to_dlpack

from dgbench.kernels_cuda.temporal_store import TemporalStore
from dgbench.kernels_cuda.temporal_store import device as device_store
from dgbench.kernels_cuda.temporal_store.device import DeviceStore


def on_device(tensor: Tensor, number: int) -> Any:
    """The tensor's memory as an array of device `number`, to be used once."""
    capsule = to_dlpack(tensor)
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    # A DLTensor begins with the address of the data, the kind of device and its number.
    ctypes.c_int32.from_address(pointer(capsule, b"dltensor") + 12).value = number
    return capsule


def product() -> tuple[list[Tensor], Tensor, Tensor]:
    """indptr, indices and values of a matrix; x; room for y."""
    indptr, indices = torch.tensor([0, 2, 3]), torch.tensor([0, 1, 1], dtype=torch.int32)
    return [indptr, indices, torch.tensor([1.0, 2.0, 3.0])], torch.ones(2, 4), torch.zeros(2, 4)


def test_a_call_runs_on_the_device_of_its_arrays_and_leaves_the_current_one(emulated_module, log):
    matrix, x, y = product()
    arrays = [on_device(t, 1) for t in (*matrix, x, y)]
    emulated_module.spmm_gespmm(*arrays, None, 5)
    assert y.tolist() == [[3.0] * 4] * 2
    assert {(call.device, call.stream) for call in log.calls("launch")} == {(1, 5)}
    arrays = [on_device(t, 1) for t in (matrix[0], matrix[1][:2].clone(), matrix[2], x, y)]
    with pytest.raises(ValueError, match="values"):
        emulated_module.spmm_gespmm(*arrays, None, 0)
    log.clear()
    emulated_module.spmm_gespmm(*matrix, x, y, None, 5)
    assert {call.device for call in log.calls("launch")} == {0}


@pytest.mark.parametrize(("at", "name"), [(1, "indices"), (2, "values"), (4, "y")])
def test_arrays_of_two_devices_are_refused_by_name(emulated_module, log, at, name):
    matrix, x, y = product()
    arrays = [on_device(t, 2 if i == at else 1) for i, t in enumerate((*matrix, x, y))]
    with pytest.raises(ValueError, match=f"{name} lies on cuda:2, indptr on cuda:1"):
        emulated_module.spmm_gespmm(*arrays, None, 0)
    assert not log.calls("launch")
    lists = [[on_device(torch.zeros(3, dtype=torch.int64), n)] for n in (1, 2)]
    with pytest.raises(ValueError, match="indices lies on cuda:2, indptr on cuda:1"):
        emulated_module.count_union(
            lists[0], [on_device(torch.zeros(0, dtype=torch.int32), 2)], lists[1][0], 0
        )


@pytest.fixture
def store(emulated_module, monkeypatch) -> TemporalStore:
    monkeypatch.setattr(device_store, "extension", lambda device: emulated_module)
    store = TemporalStore(9)
    store.insert(torch.arange(8), torch.ones(8, dtype=torch.int64), torch.arange(8).double())
    return store


def changed(store: TemporalStore, seed: int) -> None:
    """Adds a few edges, so that an update has pieces to send."""
    ends = torch.randint(0, 9, (2, 4), generator=torch.Generator().manual_seed(seed))
    store.insert(*ends, torch.full((4,), store.last_time + 1).double())


def test_a_stores_memory_and_work_are_on_its_device(store, log, monkeypatch):
    monkeypatch.setattr(DeviceStore, "_number", lambda self: 3)
    there = DeviceStore(store, "cuda", device="cpu")
    changed(store, 0)
    there.update()
    assert {call.device for call in log.calls("allocate", "copy", "launch", "record")} == {3}
    there.close()
    nodes, live = torch.zeros(1, dtype=torch.int64), torch.ones(1, dtype=torch.int64)
    counts = [torch.zeros(1, dtype=torch.int32) for _ in range(3)]
    with pytest.raises(ValueError, match="live"):
        there._graph.locate(
            live, nodes, nodes, nodes.double(), 1.0, False, 1, False, False, False, 0, 0, 0, 0,
            *counts, None, None, 0,
        )  # fmt: skip


def test_pieces_of_an_update_are_in_place_before_the_next_ones_come(store, log, monkeypatch):
    """Also where updates run on different streams: every copy to the same memory waits."""
    streams = iter(range(1, 9))
    monkeypatch.setattr(DeviceStore, "_stream", lambda self: (next(streams),))
    there = DeviceStore(store, "cuda", device="cpu")
    log.clear()
    for seed in range(4):
        changed(store, seed)
        assert there.update().patches > 0
    calls = log.calls()
    begun: dict[int, int] = {}  # place of the last copy to an address
    used: set[int] = set()
    again = 0
    for i, call in enumerate(calls):
        if call.name != "copy":
            continue
        used.add(call.stream)
        if (before := begun.get(call.value)) is not None:
            again += 1
            launch = next(k for k in range(before, i) if calls[k].name == "launch")
            own = [c for c in calls[launch:i] if c.stream == calls[before].stream]
            marks = {c.value for c in own if c.name == "record"}
            mine = [c for c in calls[launch:i] if c.stream == call.stream]
            waits = {c.value for c in mine if c.name == "await"}
            assert marks & waits
        begun[call.value] = i
    assert again > 0
    assert len(used) == 4
    there.close()
