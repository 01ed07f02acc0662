"""One store for the ranks of a machine: the same answers, in memory that is there once."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from test_gnnflow_ranked import FIRST, E, alone, data, workload

from dgbench.kernels_cuda.temporal_sample import sample_neighbours
from dgbench.kernels_cuda.temporal_store import ADAPTIVE, TemporalStore
from dgbench.runtime import machine_memory
from dgbench.runtime.collectives import Communicator
from dgbench.runtime.errors import DgbenchError, InvalidInputError, UnsupportedError
from dgbench.runtime.machine_memory import PageLock, shared_tensor
from dgbench.runtime.ranks import launch
from dgbench.systems.gnnflow.owners import IdentityHash, MachineLayout
from dgbench.systems.gnnflow.ranked import StreamRankTrainer, train_ranked
from dgbench.systems.gnnflow.remote_access import GraphRankSettings

LAYOUTS = (MachineLayout(1, 2), MachineLayout(2, 2))
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


def test_who_follows_sees_what_was_written(files) -> None:
    """Sizes of the pools are told; what they hold is read where it lies, without a copy."""
    src, dst, t = edges(900)
    plain = TemporalStore(N, policy=ADAPTIVE, undirected=True)
    writer = TemporalStore(N, policy=ADAPTIVE, undirected=True, files=files)
    reader = TemporalStore(N, policy=ADAPTIVE, undirected=True, files=files, writes=False)
    for first in range(0, 900, 300):
        cut = slice(first, first + 300)
        eid = torch.arange(first, first + 300)
        for store in (plain, writer):
            store.insert(src[cut], dst[cut], t[cut], eid)
        reader.follow(writer.counts())
        assert reader.num_records == plain.num_records
        assert reader.memory().records == plain.memory().records
        for vertex in range(N):
            for own, expected in zip(
                reader.neighbours(vertex), plain.neighbours(vertex), strict=True
            ):
                assert torch.equal(own, expected)
        asked = torch.arange(N), torch.full((N,), float(first + 200), dtype=torch.float64)
        for search in ("linear", "binary"):
            own, expected = (
                sample_neighbours(store, *asked, fanout=4, policy="uniform", search=search)
                for store in (reader, plain)
            )
            assert torch.equal(own.eids, expected.eids)
    writer.delete_edges(torch.tensor([5]))
    reader.follow(writer.counts())
    assert reader.num_records == writer.num_records == plain.num_records - 2


def test_only_one_process_changes_a_shared_store(files, tmp_path) -> None:
    src, dst, t = edges(20)
    writer = TemporalStore(N, policy=ADAPTIVE, files=files)
    writer.insert(src, dst, t)
    reader = TemporalStore(N, policy=ADAPTIVE, files=files, writes=False)
    reader.follow(writer.counts())
    for change in (
        lambda: reader.insert(src, dst, t + 100),
        lambda: reader.add_vertices(1),
        lambda: reader.delete_edges(torch.tensor([1])),
        lambda: reader.delete_vertices(torch.tensor([1])),
    ):
        with pytest.raises(InvalidInputError, match="another process writes"):
            change()
    with pytest.raises(UnsupportedError, match="stay where they are"):
        writer.offload(1e9, tmp_path / "old")
    assert not (tmp_path / "old").exists()
    with pytest.raises(InvalidInputError, match="writes its pools itself"):
        writer.follow(writer.counts())
    with pytest.raises(InvalidInputError, match="files must be none, or one for each"):
        TemporalStore(N, files=files[:3])
    with pytest.raises(InvalidInputError, match="needs the files"):
        TemporalStore(N, writes=False)
    assert reader.num_records == writer.num_records == 20


# Ranks.


def kept(comm: Communicator, layout: MachineLayout, how: dict[str, Any]) -> dict[str, Any]:
    """A rank's losses of a few batches, and the bytes that it keeps."""
    task = workload("tgat", chunks=1)
    settings = GraphRankSettings(layout, **how)
    trainer = StreamRankTrainer(comm, IdentityHash(layout.machines), task, data(task), settings)
    for last in (60, 130, E):
        trainer.insert(last)
    trainer.access.finish()
    losses = [trainer.train_batch(torch.arange(k, k + 30), 0) for k in range(FIRST, E - 30, 30)]
    return {
        "losses": losses,
        "bytes": trainer.access.host_bytes,
        "notes": trainer.notes,
        "inserted": comm.meter.counters["records_inserted"],
    }


@pytest.mark.machines_arithmetic
@pytest.mark.parametrize("layout", LAYOUTS, ids=["one machine", "two machines"])
def test_a_machine_keeps_its_records_and_rows_once(layout: MachineLayout) -> None:
    shared, copies = (
        launch(kept, layout.ranks, (layout, {"shared": on}), timeout_s=120, threads=1)
        for on in (True, False)
    )
    assert [one["losses"] for one in shared] == [one["losses"] for one in copies]
    for machine in range(layout.machines):
        first, *others = layout.members(machine)
        assert shared[first]["bytes"]["records"] == copies[first]["bytes"]["records"] > 0
        assert all(shared[rank]["bytes"]["records"] == 0 for rank in others)
        assert all(copies[rank]["bytes"]["records"] > 0 for rank in others)
        assert shared[first]["inserted"] == copies[first]["inserted"]
        if layout.machines > 1:
            assert 0 < shared[first]["bytes"]["features"] <= copies[first]["bytes"]["features"]
            assert all(shared[rank]["bytes"]["features"] == 0 for rank in others)


@pytest.mark.machines_arithmetic
@pytest.mark.parametrize("model", ["tgn", "graphsage"])
def test_ranks_that_share_a_store_give_the_losses_of_one(model: str) -> None:
    """And every record and row travels to a machine once, not once for each of its ranks."""
    task, (expected, _) = workload(model), alone(model)
    runs = {
        on: train_ranked(
            task, GraphRankSettings(MachineLayout(2, 2), shared=on), data=data(task), first=FIRST,
            epochs=2, score=(FIRST, E), ingest=30, dtype=torch.float64,
        )
        for on in (True, False)
    }  # fmt: skip
    for run in runs.values():
        assert run.losses == pytest.approx(expected.losses, rel=1e-9)
        assert run.scores.loss == pytest.approx(expected.scores.loss, rel=1e-9)
    sent = {on: run.insert_traffic.total() for on, run in runs.items()}
    assert 0 < sent[True] < 0.6 * sent[False]


def without_memory(comm: Communicator, layout: MachineLayout) -> dict[str, Any]:
    """A rank where no memory can be shared."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine_memory, "machine_key", lambda: None)
        return kept(comm, layout, {})


def test_where_no_memory_is_shared_ranks_keep_copies_and_say_so() -> None:
    layout = LAYOUTS[0]
    found = launch(without_memory, 2, (layout,), timeout_s=120, threads=1)
    assert all(one["bytes"]["records"] > 0 for one in found)
    assert all(any("a copy" in note for note in one["notes"]) for one in found)


def seen(comm: Communicator) -> list[float]:
    tensor = shared_tensor(comm, range(comm.size), (3, 2), torch.float32)
    assert tensor is not None
    if comm.rank == 1:
        tensor[1] = 7.0
    comm.barrier()
    return tensor.flatten().tolist()


def test_a_shared_tensor_is_the_same_memory() -> None:
    assert launch(seen, 2, (), timeout_s=60, threads=1) == [[0.0, 0.0, 7.0, 7.0, 0.0, 0.0]] * 2


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
    assert lock.nbytes == tensor.nbytes
    lock.close()
    assert calls[3:] == [at, at + step, at + 2 * step]
    driver.cudaHostRegister = lambda *_: 712  # somebody has locked them already
    lock.reach(1)
    assert lock.nbytes == step
    lock = PageLock(tensor, torch.device("cuda"))
    driver.cudaHostRegister = lambda *_: 2
    with pytest.raises(DgbenchError, match="CUDA error 2"):
        lock.reach(1)
