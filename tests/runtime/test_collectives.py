"""Counting, and communicators without processes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dgbench.runtime.collectives import CountOnly, LocalCommunicator, equal_parts, ring_share
from dgbench.runtime.errors import InvalidInputError, UnknownKeyError
from dgbench.runtime.meter import Meter


def simulate_ring(numel: int, size: int) -> list[tuple[int, int]]:
    """(elements, messages) per rank, by passing the chunks of a ring all-reduce around."""
    chunks, found = equal_parts(numel, size), []
    for rank in range(size):
        sent = [chunks[(rank - k) % size] for k in range(size - 1)]
        sent += [chunks[(rank + 1 - k) % size] for k in range(size - 1)]
        found.append((sum(sent), sum(1 for n in sent if n)))
    return found


@settings(deadline=None)
@given(numel=st.integers(0, 40), size=st.integers(1, 9))
def test_ring(numel: int, size: int) -> None:
    found = [ring_share(numel, rank, size) for rank in range(size)]
    assert found == simulate_ring(numel, size)
    assert sum(floats for floats, _ in found) == 2 * numel * (size - 1)


def test_one_rank_alone() -> None:
    meter = Meter()
    comm = LocalCommunicator(meter=meter)
    x = torch.randn(3, 2, requires_grad=True)
    handle = comm.start_all_to_all(2 * x, [3], [3])
    out = handle.wait()
    assert torch.equal(out, 2 * x)
    out.sum().backward()
    assert torch.equal(x.grad, torch.full((3, 2), 2.0))
    y = x.detach()
    for found in (comm.all_reduce(y), comm.all_gather(y), comm.broadcast(y)):
        assert torch.equal(found, y)
        assert found.data_ptr() != y.data_ptr()
    assert comm.exchange_sizes([3]) == [3]
    comm.barrier()
    assert comm.all_traffic().total() == 0
    assert not meter.counters


def test_arguments_that_are_wrong() -> None:
    comm = CountOnly(0, 2)
    for send, receive in (([1, 1], [1, 1]), ([3], [3]), ([4, -1], [4, 0]), ([2, 1], [1, 1])):
        with pytest.raises(InvalidInputError):
            comm.all_to_all(torch.empty(3, device="meta"), send, receive)
    x = torch.empty((2, 2), device="meta")
    with pytest.raises(UnknownKeyError, match="phase 'fwd'"), comm.phase("fwd"):
        pass
    with pytest.raises(UnknownKeyError, match="op 'prod'"):
        comm.all_reduce(x, "prod")
    with pytest.raises(InvalidInputError, match="'root' is 2"):
        comm.broadcast(x, 2)
    with pytest.raises(InvalidInputError):
        comm.all_gather(x, [1, 2])
    with pytest.raises(InvalidInputError):
        comm.all_gather(x.sum())
    for call in (comm.all_reduce, comm.all_gather, comm.broadcast):
        with pytest.raises(InvalidInputError):
            call(x.clone().requires_grad_())
