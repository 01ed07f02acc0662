"""The programming interface: what a user replaces is what is trained."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from tgcn_tiny import events, losses, opened, task

from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.tgcn.program import Edges, Program, run


class Newest(Program):
    """Samples the newer half."""

    def sampling(self, edges: Edges) -> torch.Tensor:
        return torch.arange(len(edges) // 2, len(edges))


class Halves(Program):
    """Two sets, as subgraph sampling makes."""

    def sampling(self, edges):
        even = torch.arange(0, len(edges), 2)
        return [even, even[even + 1 < len(edges)] + 1]


class Counted(Program):
    """Cuts time into two and counts what it trains on."""

    def __init__(self) -> None:
        super().__init__()
        self.trained: list[tuple[int, int]] = []

    def cuts(self, edges):
        return torch.tensor([0, 3, len(edges)])

    def train(self, grids, devices):
        self.trained.append((grids.events.numel(), devices))
        return super().train(grids, devices)


def test_a_sampler_of_ones_own_is_trained_on_any_number_of_devices():
    one, four = (opened(program=Newest(), devices=d) for d in (1, 4))
    assert losses(one) == pytest.approx(losses(four), abs=1e-10)
    count = one.data.train_end
    assert torch.equal(one.kept[0], torch.arange(count // 2, count))
    assert one.meter.counters["edges"] >= count - count // 2


def test_several_sets_take_turns():
    one = opened(program=Halves())
    first, second, third = run(one, epochs=3)
    assert first != second
    assert [kept.numel() for kept in one.kept] == [48, 47]
    assert third < first


def test_cuts_and_training_can_be_replaced():
    program = Counted()
    one = opened(program=program, devices=2)
    (loss,) = run(one)
    assert loss > 0
    assert program.trained == [(3, 2), (one.kept[0].numel() - 3, 2)]


@pytest.mark.parametrize("method", ["sis", "its_bitmap", "alias", "reservoir", "keep_share"])
def test_every_method_samples_as_many(method):
    one = opened(program=Program(method))
    one.prepare()
    degree = torch.bincount(one.data.events.src[: one.data.train_end])
    assert one.kept[0].numel() == int(((degree + 1) // 2).sum())


def test_time_is_cut_by_width_or_by_edges():
    for strict in (True, False):
        by_edges = opened(
            task(intervals=5, strict_time=strict), program=Program(time_cut="edges"),
            off=["sampling"],
        )  # fmt: skip
        loads = by_edges.loads(0, by_edges.data.train_end)
        sizes = [load.events.numel() for load in loads]
        assert sum(sizes) == by_edges.data.train_end
        assert strict or max(sizes) - min(sizes) <= 1
        times = [set(by_edges.data.events.t[load.events].tolist()) for load in loads]
        shared = [a & b for a, b in pairwise(times)]
        assert any(shared) is not strict
    chosen = opened(task(intervals=None, batch=4), stream=events(300))
    chosen.prepare()
    wanted = round(chosen.kept[0].numel() / 20)
    assert len(chosen.program.cuts(chosen.edges_of(chosen.kept[0]))) == wanted + 1


@pytest.mark.parametrize(
    "found",
    [[], torch.tensor([3, 1]), torch.tensor([0, 500]), torch.tensor([0.5]), [torch.tensor([-1])]],
    ids=["none", "falling", "beyond", "floats", "negative"],
)
def test_a_sample_that_is_none_is_refused(found):
    class Wrong(Program):
        def sampling(self, edges):
            return found

    with pytest.raises(InvalidInputError, match="sampling"):
        opened(program=Wrong()).prepare()
