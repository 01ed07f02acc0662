"""Counting, and communicators without processes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dgbench.runtime.collectives import (
    Communicator,
    CountOnly,
    LocalCommunicator,
    Traffic,
    count_ranks,
    equal_parts,
    rank_seed,
    ring_share,
    stack,
)
from dgbench.runtime.errors import InvalidInputError, UnknownKeyError, UnsupportedError
from dgbench.runtime.meter import Meter


@pytest.fixture(autouse=True)
def no_copy_thread_is_left() -> None:
    """No test here opens a link, so the costly look for its threads is left out."""


def redistribute(comm: Communicator, t: int, n: int, widths: list[int], rerun: bool) -> None:
    """ESDG: snapshots to vertices and back for each pair of widths, forward and backward."""
    steps, vertices = equal_parts(t, comm.size), equal_parts(n, comm.size)
    mine, own = steps[comm.rank], vertices[comm.rank]
    to_vertices = [mine * v for v in vertices], [s * own for s in steps]
    for phase in ("forward", "rerun") if rerun else ("forward",):
        with comm.phase(phase):
            total = torch.zeros((), device=comm.device)
            for out, back in zip(widths[::2], widths[1::2], strict=True):
                x = torch.empty((mine * n, out), device=comm.device, requires_grad=True)
                y = comm.all_to_all(x, *to_vertices)
                z = y.new_empty((t * own, back), requires_grad=True)
                total = total + y.sum() + comm.all_to_all(z, *to_vertices[::-1]).sum()
    total.backward()


@settings(deadline=None)
@given(
    ranks=st.integers(1, 8),
    t=st.integers(1, 4),
    n=st.integers(1, 5),
    width=st.integers(1, 3),
)
def test_equal_parts_cost_the_formula(ranks: int, t: int, n: int, width: int) -> None:
    """V (P - 1) / P per pass, to the float, where shares are equal."""
    t, n = t * ranks, n * ranks
    found = count_ranks(redistribute, ranks, t, n, [width, 2 * width], True)
    volume = t * n * 3 * width
    for phase in ("forward", "rerun", "backward"):
        assert found.total("floats", phase=phase) * ranks == volume * (ranks - 1)
        assert found.total("bytes", phase=phase) == 4 * found.total("floats", phase=phase)
        assert found.total("messages", phase=phase) == 2 * ranks * (ranks - 1)


@pytest.mark.parametrize(
    ("widths", "printed"),
    [([6, 6], (5.184, 6.48, 6.804)), ([8, 6, 12, 6], (13.824, 17.28, 18.144))],
)
def test_volumes_of_table_2(widths: list[int], printed: tuple[float, ...]) -> None:
    """ESDG Table 2 by counting, at its own sizes and without their data (192 steps of 1 M)."""
    for ranks, billions in zip((4, 16, 64), printed, strict=True):
        found = count_ranks(redistribute, ranks, 192, 1_000_000, widths, True)
        assert found.total("floats") == round(billions * 1e9)
        without = count_ranks(redistribute, ranks, 192, 1_000_000, widths, False)
        assert 3 * without.total("floats") == 2 * found.total("floats")


def test_uneven_shares_of_128_ranks() -> None:
    """192 steps on 128 ranks: what stays at home is counted out for each rank by itself."""
    steps, vertices = equal_parts(192, 128), equal_parts(1_000_003, 128)
    found = count_ranks(redistribute, 128, 192, 1_000_003, [6, 6], False)
    kept = sum(s * v for s, v in zip(steps, vertices, strict=True))
    assert found.total("floats", phase="forward") == 12 * (192 * 1_000_003 - kept)
    assert (found.matrix("floats").diagonal() == 0).all()


def test_count_only_refuses_what_it_cannot_know() -> None:
    comm = CountOnly(1, 4)
    with pytest.raises(UnsupportedError, match="not known"):
        comm.exchange_sizes([1, 2, 3, 4])
    with pytest.raises(UnsupportedError, match="own traffic"):
        comm.all_traffic()
    with pytest.raises(InvalidInputError, match="at most"):
        CountOnly(0, 10**6)


def test_count_only_walks_the_other_operations() -> None:
    comm = CountOnly(1, 4)
    x = torch.empty((3, 2), device="meta")
    assert comm.all_gather(x, [1, 3, 0, 5]).shape == (9, 2)
    assert comm.all_reduce(x).shape == comm.broadcast(x, 1).shape == (3, 2)
    comm.barrier()
    assert comm.traffic.row("floats", operation="all_gather").tolist() == [6, 0, 6, 6]
    assert comm.traffic.row("floats", operation="broadcast").tolist() == [6, 0, 6, 6]
    assert comm.traffic.row("bytes", operation="all_reduce").tolist() == [0, 0, 4 * 10, 0]


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


@settings(deadline=None)
@given(total=st.integers(0, 100), parts=st.integers(1, 12))
def test_equal_parts(total: int, parts: int) -> None:
    found = equal_parts(total, parts)
    assert sum(found) == total
    assert len(found) == parts
    assert found == sorted(found, reverse=True)
    assert max(found) - min(found) <= 1


def test_equal_parts_out_of_range() -> None:
    with pytest.raises(InvalidInputError, match="'parts' 0"):
        equal_parts(3, 0)


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


def test_a_handle_is_waited_for_once() -> None:
    handle = LocalCommunicator().start_all_to_all(torch.zeros(2), [2], [2])
    handle.wait()
    with pytest.raises(InvalidInputError, match="waited for before"):
        handle.wait()


def test_gradient_is_wanted_as_said() -> None:
    comm = LocalCommunicator()
    plain, wanted = torch.ones(2), torch.ones(2, requires_grad=True)
    assert not comm.all_to_all(plain, [2], [2]).requires_grad
    assert comm.all_to_all(plain, [2], [2], grad=True).requires_grad
    assert not comm.all_to_all(wanted, [2], [2], grad=False).requires_grad
    with torch.no_grad():
        assert not comm.all_to_all(wanted, [2], [2], grad=True).requires_grad


@pytest.mark.parametrize(
    ("send", "receive", "message"),
    [
        ([1, 1], [1, 1], r"asks for 2 rows of 'x', which has shape \(3,\)"),
        ([3], [3], "needed: 2 numbers"),
        ([4, -1], [4, 0], "needed: 2 numbers >= 0"),
        ([2, 1], [1, 1], "sends itself 2 rows and receives 1"),
    ],
)
def test_sizes_that_do_not_fit(send: list[int], receive: list[int], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        CountOnly(0, 2).all_to_all(torch.empty(3, device="meta"), send, receive)


def test_arguments_that_are_wrong() -> None:
    comm = CountOnly(0, 2)
    x = torch.empty((2, 2), device="meta")
    with pytest.raises(UnknownKeyError, match="phase 'fwd'"), comm.phase("fwd"):
        pass
    with pytest.raises(UnknownKeyError, match="op 'prod'"):
        comm.all_reduce(x, "prod")
    with pytest.raises(InvalidInputError, match="'root' is 2"):
        comm.broadcast(x, 2)
    with pytest.raises(InvalidInputError, match="gives rank 0 1 rows"):
        comm.all_gather(x, [1, 2])
    with pytest.raises(InvalidInputError, match="is a scalar"):
        comm.all_gather(x.sum())
    for call in (comm.all_reduce, comm.all_gather, comm.broadcast):
        with pytest.raises(InvalidInputError, match="not differentiable"):
            call(x.clone().requires_grad_())


def test_phase_is_put_back_after_an_error() -> None:
    comm = CountOnly(0, 2)
    with pytest.raises(KeyError), comm.phase("rerun"):
        raise KeyError
    comm.all_reduce(torch.empty(4, device="meta"))
    assert comm.traffic.total("floats", phase="forward") == 4


def test_traffic_by_name() -> None:
    meter = Meter()
    comm = CountOnly(0, 3, meter=meter)
    comm.all_to_all(torch.empty((5, 2), device="meta"), [1, 4, 0], [1, 0, 0])
    assert meter.counters == {
        "all_to_all_floats_forward": 8,
        "all_to_all_bytes_forward": 32,
        "all_to_all_messages_forward": 1,
    }
    assert comm.traffic.counters() == {
        "all_to_all_floats_forward_0to1": 8,
        "all_to_all_bytes_forward_0to1": 32,
        "all_to_all_messages_forward_0to1": 1,
    }
    for bad in ({"unit": "bits"}, {"phase": "sideways"}, {"operation": "gossip"}):
        with pytest.raises(UnknownKeyError):
            comm.traffic.row(**bad)


def test_stack_wants_every_rank() -> None:
    with pytest.raises(InvalidInputError, match="every rank"):
        stack([Traffic(0, 2)])
    with pytest.raises(InvalidInputError, match="every rank"):
        stack([Traffic(1, 2), Traffic(0, 2)])
    with pytest.raises(InvalidInputError, match="'rank' is 2"):
        Traffic(2, 2)


def test_seeds_differ() -> None:
    seeds = {rank_seed(seed, rank) for seed in range(40) for rank in range(40)}
    assert len(seeds) == 1600
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert rank_seed(3, 4) == rank_seed(3, 4)
