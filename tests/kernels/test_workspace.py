"""Memory is used again when nothing refers to it any more, and never before."""

from __future__ import annotations

import threading

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dgbench.kernels_cuda.workspace import SMALLEST, Workspace

LIKE = torch.empty(0)
LARGE = (3, SMALLEST // 8)  # float32


def test_a_block_is_used_again_once_it_is_free() -> None:
    space = Workspace()
    first = space.empty(LARGE, LIKE)
    assert first.shape == LARGE
    assert first.dtype == torch.float32
    assert first.is_contiguous()
    place = first.data_ptr()
    view = first[1]
    del first
    other = space.empty(LARGE, LIKE)
    assert other.data_ptr() != place  # the view still needs it
    del view
    assert space.empty(LARGE, LIKE).data_ptr() == place
    assert space.empty((LARGE[1], 3), LIKE).data_ptr() == place  # as many bytes
    assert space.nbytes == 2 * 4 * LARGE[0] * LARGE[1]
    space.empty((0, 4), LIKE), space.empty((3, 4), LIKE)  # small ones are ordinary
    assert space.nbytes == 2 * 4 * LARGE[0] * LARGE[1]


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 3)), max_size=40))
def test_no_two_live_results_share_memory(actions) -> None:
    space, alive = Workspace(), {}
    for name, rows in actions:
        alive.pop(name, None)
        alive[name] = space.empty((rows, SMALLEST // 4), LIKE).fill_(name * 10 + rows)
        for other, tensor in alive.items():
            assert torch.equal(tensor, torch.full_like(tensor, other * 10 + tensor.shape[0]))


def test_threads_never_get_the_same_block() -> None:
    space, errors = Workspace(), []

    def work(number: float) -> None:
        for _ in range(100):
            mine = space.empty((1, SMALLEST // 4), LIKE)
            mine.fill_(number)
            if float(mine.min()) != number or float(mine.max()) != number:
                errors.append(number)

    threads = [threading.Thread(target=work, args=(float(i),)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
