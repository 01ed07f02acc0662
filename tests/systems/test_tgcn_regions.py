"""Regions of a device: what is counted, what overlaps, and that nothing is read too early."""

from __future__ import annotations

import pytest
import torch

from dgbench.runtime.meter import Meter
from dgbench.systems.tgcn.feeding import Feeder
from dgbench.systems.tgcn.regions import Account, DeviceFull, Regions, copy_across

CPU = torch.device("cpu")


@pytest.fixture(params=[True, False], ids=["overlap", "in turn"])
def regions(request):
    made = Regions(CPU, Meter(), Account(), overlap=request.param)
    yield made
    made.close()


def test_an_account_knows_its_peak_and_its_limit():
    account = Account(100)
    account.hold("R1", 40)
    account.hold("R2", 50)
    account.hold("R2", 10)
    account.hold("R3", 50)
    assert (account.peak, account.peaks["R2"], sum(account.held.values())) == (100, 50, 100)
    with pytest.raises(DeviceFull, match=r"'R3' of 51 bytes.*101 bytes"):
        account.hold("R3", 51)
    assert account.held["R3"] == 50


def test_vectors_come_and_go(regions):
    regions.reserve(5, 3, torch.float32, now=1, coming=1)
    assert regions.account.held == {"R2 vectors": 180, "R3 vectors": 180}
    first, second = regions.take(0, 5), regions.take(1, 2)
    assert first.embedding.shape == (5, 3)
    assert second.total.shape == (2, 3)
    first.embedding.fill_(1)
    first.gradient.fill_(2)
    first.total.fill_(3)
    assert not second.embedding.eq(1).all() or second.buffer is not first.buffer
    regions.give(first)
    assert regions.take(2, 4).buffer is first.buffer


def test_what_is_sent_arrives_as_it_was(regions):
    feeder = Feeder(regions)
    sent = [regions.link.stage_all([torch.full((50,), k), torch.arange(k)]) for k in range(9)]
    for k, staged in enumerate(sent):
        feeder.ahead((0, 0, k), staged)
        if k + 1 < len(sent):
            feeder.ahead((0, 0, k + 1), sent[k + 1])
        column, numbers = feeder.get((0, 0, k), staged)
        assert column.eq(k).all()
        assert numbers.tolist() == list(range(k))
        feeder.done((0, 0, k))
    assert regions.account.held["R2 edges"] == regions.account.held["R3 edges"] == 0
    assert regions.account.peaks["R3 edges"] > 0 or not regions.overlap
    assert regions.meter.counters["bytes_h2d"] == sum(s.layout.nbytes for s in sent)


@pytest.mark.parametrize("direct", [True, False])
def test_a_copy_between_devices_is_counted_once_on_each_way(direct):
    meter, target = Meter(), torch.zeros(4, 3)
    copy_across(torch.ones(4, 3), target, meter, direct=direct)
    assert target.eq(1).all()
    through_host = 0 if direct else 48
    assert meter.counters["bytes_swapped"] == 48
    assert meter.counters["bytes_h2d"] == meter.counters["bytes_d2h"] == through_host
