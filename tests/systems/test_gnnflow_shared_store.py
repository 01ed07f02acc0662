"""One store for the ranks of a machine: the same answers, in memory that is there once."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest
import torch

from dgbench.kernels_cuda.temporal_sample import sample_neighbours
from dgbench.kernels_cuda.temporal_store import ADAPTIVE, TemporalStore
from dgbench.runtime.errors import DgbenchError, InvalidInputError, UnsupportedError
from dgbench.runtime.machine_memory import PageLock

N = 40


def edges(count: int) -> tuple[torch.Tensor, ...]:
    draw = torch.Generator().manual_seed(3)
    src, dst = (torch.randint(N, (count,), generator=draw) for _ in range(2))
    return src, dst, torch.randint(count, (count,), generator=draw).sort().values.double()


@pytest.fixture
def files():
    found = [os.memfd_create("test") for _ in range(4)]
    yield found
    for file in found:
        os.close(file)


def test_who_follows_sees_what_was_written_and_changes_nothing(files, tmp_path) -> None:
    """Sizes of the pools are told; what they hold is read where it lies, without a copy."""
    src, dst, t = edges(900)
    plain = TemporalStore(N, policy=ADAPTIVE, undirected=True)
    writer = TemporalStore(N, policy=ADAPTIVE, undirected=True, files=files)
    reader = TemporalStore(N, policy=ADAPTIVE, undirected=True, files=files, writes=False)
    for first in range(0, 900, 300):
        cut = slice(first, first + 300)
        for store in (plain, writer):
            store.insert(src[cut], dst[cut], t[cut], torch.arange(first, first + 300))
        reader.follow(writer.counts())
        assert reader.memory().records == plain.memory().records
        for vertex in range(N):
            for own, wanted in zip(*(s.neighbours(vertex) for s in (reader, plain)), strict=True):
                assert torch.equal(own, wanted)
        roots = torch.arange(N), torch.full((N,), float(first + 200), dtype=torch.float64)
        own, wanted = (
            sample_neighbours(store, *roots, fanout=4, policy="uniform")
            for store in (reader, plain)
        )
        assert torch.equal(own.eids, wanted.eids)
    writer.delete_edges(torch.tensor([5]))
    reader.follow(writer.counts())
    assert reader.num_records == writer.num_records == plain.num_records - 2
    one = torch.tensor([1])
    for change in (
        lambda: reader.insert(src, dst, t + 1000), lambda: reader.add_vertices(1),
        lambda: reader.delete_edges(one), lambda: reader.delete_vertices(one),
        lambda: writer.follow(writer.counts()), lambda: TemporalStore(N, files=files[:3]),
        lambda: TemporalStore(N, writes=False),
    ):  # fmt: skip
        with pytest.raises(InvalidInputError):
            change()
    with pytest.raises(UnsupportedError):
        writer.offload(1e9, tmp_path / "old")
    assert not (tmp_path / "old").exists()
    assert reader.num_records == writer.num_records


def test_pages_are_locked_as_far_as_they_are_in_use(monkeypatch) -> None:
    tensor, calls = torch.zeros(3 << 19, dtype=torch.float32), []  # 6 MiB
    driver = SimpleNamespace(
        cudaHostRegister=lambda at, nbytes, flags: calls.append((at, nbytes)) or 0,
        cudaHostUnregister=lambda at: calls.append(at),
    )
    monkeypatch.setattr(torch.cuda, "cudart", lambda: driver)
    PageLock(tensor, torch.device("cpu")).reach(tensor.nbytes)
    assert not calls
    lock, at, step = PageLock(tensor, torch.device("cuda")), tensor.data_ptr(), 2 << 20
    for used in (10, 20, step + 1, tensor.nbytes):
        lock.reach(used)
    assert calls == [(at, step), (at + step, step), (at + 2 * step, step)]
    lock.close()
    assert calls[3:] == [at, at + step, at + 2 * step]
    driver.cudaHostRegister = lambda *_: 712  # somebody has locked them already
    lock.reach(1)
    assert lock.nbytes == step
    driver.cudaHostRegister = lambda *_: 2
    with pytest.raises(DgbenchError):
        PageLock(tensor, torch.device("cuda")).reach(1)
