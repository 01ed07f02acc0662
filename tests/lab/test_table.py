"""Tables of observations: what is selected, and ratios held against those of plain rows."""

from __future__ import annotations

import math

import pytest

from dgbench.harness.store.row import Row
from dgbench.lab.compare import ratio, ratio_of
from dgbench.lab.table import Table, observation, rows_of
from dgbench.runtime.errors import InvalidInputError, UnknownKeyError


def row(system: str, round_: int = 1, *, group: str = "g", **fields) -> Row:
    own = {"id": f"{system}-{group}-r{round_}", "paper": "toy", "experiment": "fig1"}
    params = {"system": system, "dataset": group}
    return Row(**{**own, "params": params, "group": group, "round": round_, **fields})


def timed(system: str, round_: int, seconds: float, group: str = "g", **fields) -> Row:
    observed = [observation("step_time", seconds, samples=[seconds])]
    return row(system, round_, group=group, observed=observed, **fields)


def test_observations_are_selected_by_metric_and_by_dimensions_of_row_and_number() -> None:
    one = row("a", observed=[
        observation("edges", 7), observation("memory", 8, format="csr"),
        observation("memory", 9, format="coo"),
    ])  # fmt: skip
    table = Table.of([one, row("b", observed=[observation("edges", 5)])])
    assert table.where("edges", system="b").get() == 5
    assert table.where("memory", system="a").numbers("format") == {"csr": 8, "coo": 9}
    assert table.where(("memory", "edges"), dataset="g").values == [7, 8, 9, 5]
    assert table.where("memory", format=("csr", "slices")).values == [8]
    assert table.where("memory", format=lambda name: name != "csr").values == [9]
    assert list(table.by("system")) == ["a", "b"]
    assert list(table.by("system", "format")) == [
        ("a", None), ("a", "csr"), ("a", "coo"), ("b", None),
    ]  # fmt: skip
    assert [r.id for r in table.rows] == ["a-g-r1", "b-g-r1"]
    assert table.where("loss").get() is None
    assert (len(table[1:3]), table[0]["round"], table[0]["no such"]) == (2, 1, None)


def test_one_number_is_asked_for_where_there_is_one_and_the_last_counts() -> None:
    table = Table.of([row("a", observed=[observation("edges", 7), observation("edges", 8)])])
    assert table.where("edges").numbers("system") == {"a": 8}
    with pytest.raises(InvalidInputError, match="2"):
        table.where("edges").get()
    with pytest.raises(InvalidInputError, match="0"):
        table.where("memory").one()
    with pytest.raises(UnknownKeyError):
        table.where("edgs")


def test_a_ratio_is_the_mean_of_its_nodes_and_pairs_no_two_of_them() -> None:
    """Seconds of the fast side are of the same round, and on `there` of other nodes, too."""
    places = {1: "here", 2: "here", 3: "here", 4: "there", 5: "elsewhere"}
    gains = {1: 2.0, 2: 2.1, 3: 2.2, 4: 4.0, 5: 9.0}
    slow = [timed("slow", n, gains[n], node=node) for n, node in places.items()]
    fast = [timed("fast", n, 1.0, node=node) for n, node in places.items() if n != 5]
    fast.append(timed("fast", 5, 1.0, node="here"))
    table = Table.of([*slow, *fast])
    found = ratio(table.where(system="slow"), table.where(system="fast"))
    first = (2.0 * 2.1 * 2.2) ** (1 / 3)
    assert found is not None
    assert (found.n, found.processes) == (4, 4)
    assert found.value == pytest.approx((first * 4.0) ** 0.5)
    assert found.low < 1 < 100 < found.high  # two nodes tell little of others
    alone = Table.of([*slow[:3], *fast[:3]])
    one = ratio(alone.where(system="slow"), alone.where(system="fast"))
    assert one is not None
    assert 1.5 < one.low < one.value == pytest.approx(first)


@pytest.mark.parametrize(
    "fields", [{"status": "oom"}, {"instrumented": True}, {"params": {"control": "aa"}}], ids=str
)
def test_rows_that_may_not_be_used_are_left_out(fields: dict) -> None:
    other = timed("a", 1, 1.0, **fields)
    assert len(Table.of([other])) == len(rows_of([other])) == 0


def test_a_ratio_pairs_settings_of_one_process_and_says_where_it_cannot() -> None:
    made = [
        row("a", number, observed=[
            observation("step_time", 2.0 * number, setting="plain", width=8),
            observation("step_time", 1.0 * number, setting="fast", width=8),
            observation("step_time", 6.0 * number, setting="plain", width=16),
            observation("step_time", 1.0 * number, setting="fast", width=16),
        ])
        for number in (1, 2)
    ]  # fmt: skip
    table = Table.of(made).where("step_time")
    plain, fast = table.where(setting="plain"), table.where(setting="fast")
    pooled = ratio(plain, fast)
    assert pooled is not None
    assert pooled.value == pytest.approx(math.sqrt(2 * 6))
    wide = ratio(plain.where(width=16), fast.where(width=16))
    assert wide is not None
    assert (wide.value, wide.n) == (pytest.approx(6), 2)
    with pytest.raises(InvalidInputError, match="ambiguous"):
        ratio(plain + plain, fast)
    assert ratio(plain, fast.where(width=4)) is None


def test_ratios_formed_in_processes_are_pooled_over_them() -> None:
    rows = [
        row("a", n, deviation={"loss": -1e-6 * n}, data={"twin": n == 2},
            observed=[observation("speedup", value, low=value / 2, high=2 * value, setting="x")])
        for n, value in enumerate((2.0, 8.0), 1)
    ]  # fmt: skip
    assert ratio_of(Table()) is None
    alone = ratio_of(Table.of(rows[:1]))
    assert alone is not None
    assert (alone.value, alone.low, alone.high, alone.twin) == (2.0, 1.0, 4.0, False)
    both = ratio_of(Table.of(rows))
    assert both is not None
    assert (both.value, both.n, both.twin, both.deviation) == (pytest.approx(4), 2, True, 2e-6)
    assert both.rows == ["a-g-r1", "a-g-r2"]
