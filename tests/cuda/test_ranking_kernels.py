"""Ranks of true columns on the device, against the operator of the CPU."""

from __future__ import annotations

import pytest
import torch

from dgbench.kernels_cuda.ranking import rank_columns


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.usefixtures("order")
def test_ranks_are_those_of_the_cpu(native, dtype, filtered):
    for rows, width, values in (
        (0, 4, 3), (1, 1, 1), (3, 31, 4), (9, 32, 5), (20, 33, 2), (70, 100, 9),
    ):  # fmt: skip
        draw = torch.Generator().manual_seed(rows + width)
        scores = torch.randint(0, values, (rows, width), generator=draw).to(dtype)
        column = torch.randint(0, width, (rows,), generator=draw)
        lists: tuple[torch.Tensor, ...] = ()
        if filtered:
            left_out = torch.rand(rows, width, generator=draw) < 0.4
            left_out[torch.arange(rows), column] = False
            lengths = torch.tensor([0, *left_out.sum(1).tolist()])
            lists = (lengths.cumsum(0), left_out.nonzero()[:, 1].contiguous())
        right = rank_columns(scores, column, *lists)
        above, equal = (native.put(torch.full((rows,), -9)) for _ in range(2))
        given = [native.put(one) for one in lists] or [None, None]
        native.call("rank_columns", native.put(scores), native.put(column), *given, above, equal)
        assert torch.equal(above.cpu(), right.above)
        assert torch.equal(equal.cpu(), right.equal)


def test_sizes_that_contradict_each_other_are_refused(native):
    scores, column = native.put(torch.zeros(2, 3)), native.put(torch.zeros(2, dtype=torch.int64))
    above, short = column.clone(), native.put([0])
    given = [scores, column, None, None, above, above.clone()]
    native.call("rank_columns", *given)
    for at, name in ((1, "column"), (2, "skip"), (4, "above"), (5, "equal")):
        with pytest.raises(ValueError, match=name):
            native.call("rank_columns", *given[:at], short, *given[at + 1 :])
