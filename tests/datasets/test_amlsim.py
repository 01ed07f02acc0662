"""The generator of payments: its degrees are the published ones, and equal seeds draw equals."""

from __future__ import annotations

import numpy as np
import pytest

from dgbench.datasets import amlsim
from dgbench.runtime.errors import DataError, InvalidInputError, MissingDataError

DEGREES = "Count,In-degree,Out-degree\n0,10,5\n1,50,60\n2,30,25\n4,10,10\n"
ACCOUNTS = "count,min_balance,max_balance,country,business_type,model,bank_id\n110,1,2,US,I,1,b\n"
ALERTS = (
    "count,type,schedule_id,min_accounts,max_accounts,min_amount,max_amount,min_period,max_period\n"
    "3,fan_in,2,5,6,1,2,5,9\n2,fan_out,2,5,5,1,2,5,9\n4,cycle,2,3,5,1,2,5,9\n"
)


@pytest.fixture
def folder(tmp_path):
    for name, text in (("degree", DEGREES), ("accounts", ACCOUNTS), ("alertPatterns", ALERTS)):
        (tmp_path / f"{name}.csv").write_text(text)
    return tmp_path


def test_degrees_of_the_base_graph_are_those_of_the_list(folder):
    parameters = amlsim.read_parameters(folder)
    sender, receiver = amlsim.configuration(parameters, np.random.default_rng(3))
    assert len(sender) == 50 + 60 + 40 == 150
    assert not (sender == receiver).any()
    for ends, listed in ((sender, parameters.out_degrees), (receiver, parameters.in_degrees)):
        counts = np.bincount(np.bincount(ends, minlength=110), minlength=5)
        wanted = listed.copy()
        wanted[0] += 110 - listed.sum()  # accounts that the list leaves out
        assert counts.tolist() == wanted.tolist()


def test_alerts_are_fans_and_cycles_within_their_period(folder):
    rng = np.random.default_rng(0)
    kinds = {alert.kind: alert for alert in amlsim.read_parameters(folder).alerts}
    source, target, _ = amlsim._alerts(kinds["fan_in"], 110, 50, rng)
    assert len(np.unique(target)) == 3
    assert 3 * 4 <= len(source) <= 3 * 5
    source, target, _ = amlsim._alerts(kinds["fan_out"], 110, 50, rng)
    assert (len(np.unique(source)), len(source)) == (2, 8)
    cycle = amlsim.AlertPattern("cycle", 1, (4, 4), (5, 5))
    source, target, time = amlsim._alerts(cycle, 110, 50, rng)
    assert sorted(source) == sorted(target)
    assert np.roll(source, -1).tolist() == target.tolist()
    assert time.max() - time.min() < 5


def test_equal_seeds_draw_equal_streams(folder):
    parameters = amlsim.read_parameters(folder)
    first, again, other = (amlsim.generate(parameters, seed=seed) for seed in (1, 1, 2))
    for column in ("src", "dst", "t"):
        assert getattr(first, column).equal(getattr(again, column))
    assert not first.src.equal(other.src)
    assert first.num_nodes == 110
    assert 0 <= float(first.t.min()) <= float(first.t.max()) < amlsim.STEPS
    with pytest.raises(InvalidInputError, match="9"):
        amlsim.generate(parameters, steps=5)


def test_broken_parameters_are_refused(folder, monkeypatch):
    for row, said in (("1,5,6", "5 payments received, 6"), ("1,200,200", "110")):
        (folder / "degree.csv").write_text(f"Count,In-degree,Out-degree\n{row}\n")
        with pytest.raises(DataError, match=said):
            amlsim.read_parameters(folder)
    (folder / "degree.csv").unlink()
    with pytest.raises(DataError):
        amlsim.read_parameters(folder)
    monkeypatch.delenv("DGBENCH_DATA", raising=False)
    with pytest.raises(MissingDataError):
        amlsim.published("1M")
    with pytest.raises(InvalidInputError, match="size"):
        amlsim.published("2M")
