"""Standing of rows: what a failed or a missing check makes void, over kept runs of all papers."""

from __future__ import annotations

import msgspec
import pytest

from dgbench.harness.claims import evaluate
from dgbench.harness.cli.outcome import unexpected
from dgbench.harness.store import Row, Store
from dgbench.harness.store.row import VOID
from dgbench.harness.store.standing import (
    cell_states,
    contender_of,
    judged,
    of_others,
    void_reasons,
    wrong_results,
)
from dgbench.lab.result_checks import ResultCheck
from dgbench.lab.table import observation
from dgbench.systems.base import get_paper
from tests.golden.record import PAPERS, kept_runs

RIGHT = ResultCheck(of="outputs", against="oracle", gap=1e-7, tolerance=1e-5, compared=4)
WRONG = ResultCheck(of="outputs", against="oracle", gap=0.5, tolerance=1e-5, compared=4)


def row(name: str, system: str = "pipad", **fields) -> Row:
    params = {"system": system, "dataset": "x", "model": "m"} | fields.pop("params", {})
    return Row(id=name, paper="pipad", experiment="fig10", params=params, **fields)


def statuses(*rows: Row) -> list[str]:
    return [one.status for one in judged(rows)]


def test_a_row_stands_by_a_check_of_its_own_process() -> None:
    own = row("a", checks=[RIGHT])
    later = row("b", round=2)
    control = row("c", params={"control": "aa"})
    instrumented = row("d", instrumented=True)
    assert statuses(own, later, control, instrumented) == ["ok", *[VOID] * 3]
    checked = [msgspec.structs.replace(one, checks=[RIGHT]) for one in (later, instrumented)]
    assert statuses(own, *checked) == ["ok"] * 3


def test_a_wrong_result_falls_with_its_own_settings_alone() -> None:
    """A contender of the tuned division is no judge of the base, whatever the experiment."""
    own = {"division": "tuned"}
    base = row("a", checks=[RIGHT])
    tuned = row("b", params=own, status="check", reason="wrong", checks=[WRONG])
    other = msgspec.structs.replace(base, id="c", experiment="fig12")
    assert statuses(base, other, tuned) == ["ok", "ok", "check"]
    beside = row("d", round=2, params=own, checks=[RIGHT])
    assert statuses(tuned, beside) == ["check", VOID]


EMPTY = msgspec.structs.replace(RIGHT, compared=0)
LOOSE = msgspec.structs.replace(RIGHT, tolerance=0.9, gap=0.5)


@pytest.mark.parametrize("check", [WRONG, EMPTY, LOOSE])
def test_a_check_that_fails_or_says_nothing_is_none(check) -> None:
    assert not check.passed
    assert statuses(row("a", checks=[RIGHT, check])) == [VOID]


UNMEASURED = ("not run here", "by definition")


def test_a_wrong_result_spoils_its_workload_and_no_other() -> None:
    wrong = row("w", params={"check": True}, status="check", reason="off by 0.5")
    rows = [
        wrong,
        row("same", checks=[RIGHT]),
        row("model", params={"model": "other"}, checks=[RIGHT]),
        row("rival", system="pygt", checks=[RIGHT]),
        Row(id="any", paper="pipad", experiment="space", params={}, checks=[RIGHT]),
    ]
    found = {one.id: one for one in judged(rows)}
    assert [one.status for one in found.values()] == ["check", VOID, "ok", "ok", "ok"]
    assert "off by 0.5" in found["same"].reason
    assert wrong_results(rows) == ["pipad on x/m: off by 0.5"]


def raced(name: str, *checks: ResultCheck, experiment: str = "table2", **fields) -> Row:
    """A row whose cell races two contenders on two datasets of one model."""
    observed = [observation("turns", 3)]
    for dataset in ("x", "y"):
        for setting in ("a", "b"):
            observed.append(observation("step_time", 1.0, dataset=dataset, setting=setting))
        observed.append(observation("speedup", 2.0, dataset=dataset, setting="a", baseline="b"))
    params = {"graphs": "both", "model": "m"} | fields.pop("params", {})
    row = Row(id=name, paper="dgc", experiment=experiment, params=params, observed=observed,
              checks=[RIGHT, *checks], **fields)  # fmt: skip
    if checks:
        row.status, row.reason = "check", "wrong"
        row.observed = of_others(row)
    return row


def left(row: Row) -> set[tuple]:
    """Dataset, setting and baseline of the numbers of a row."""
    names = ("dataset", "setting", "baseline")
    return {tuple(one.dims.get(name) for name in names) for one in row.observed}


SEED = {"params": {"seed": 2}}
OTHER = {"params": {"model": "other"}}
FACTS = (None, None, None)
RIVAL = {FACTS, ("x", "a", None), ("y", "a", None)}


def test_a_wrong_contender_of_a_race_takes_its_own_numbers_alone() -> None:
    wrong = msgspec.structs.replace(WRONG, system="b")
    rows = [
        raced("w", wrong),
        raced("again", **SEED),
        raced("else", **OTHER),
        raced("apart", experiment="fig4"),
    ]
    found = {one.id: one for one in judged(rows)}
    assert [one.status for one in found.values()] == ["ok"] * 4
    assert left(found["w"]) == left(found["again"]) == RIVAL
    assert left(found["else"]) == left(rows[2])
    assert left(found["apart"]) == left(rows[3])  # nobody says that it is on the same dataset
    assert [bool(void_reasons(one)) for one in found.values()] == [True, True, False, False]
    assert len(wrong_results(rows)) == len(wrong_results(found.values())) == 1
    assert judged(list(found.values())) == list(found.values())


def test_a_check_may_name_one_of_the_workloads_of_its_cell() -> None:
    wrong = msgspec.structs.replace(WRONG, system="b", workload={"dataset": "x"})
    rows = [raced("w", wrong), raced("apart", experiment="fig4")]
    whole = left(rows[1])
    lost = {("x", "b", None), ("x", "a", "b")}
    assert [left(one) for one in judged(rows)] == [whole - lost] * 2
    of_y = Row(id="y", paper="dgc", experiment="fig5", params={"model": "m", "dataset": "y"},
               observed=[observation("step_time", 1.0, setting="b")], checks=[RIGHT])  # fmt: skip
    assert [one.status for one in judged([*rows, of_y])] == ["ok"] * 3
    of_y.params["dataset"] = "x"
    assert [one.status for one in judged([*rows, of_y])] == ["ok", "ok", VOID]


def test_a_cell_that_names_no_contender_takes_down_nothing_outside() -> None:
    def count(name: str, dataset: str = "x", **fields) -> Row:
        fields = {"experiment": "table1", "checks": [RIGHT]} | fields
        return Row(id=name, paper="dgc", params={"dataset": dataset},
                   observed=[observation("edges", 3)], **fields)  # fmt: skip

    wrong = count("w", status="check", reason="wrong", checks=[WRONG])
    rows = [wrong, count("again", round=2), count("y", "y"), count("else", experiment="fig3")]
    assert statuses(*rows) == ["check", VOID, "ok", "ok"]


def test_where_the_numbers_of_a_wrong_contender_cannot_be_told_none_are_kept() -> None:
    for named in ("", "c"):
        wrong = raced("w", msgspec.structs.replace(WRONG, system=named))
        assert wrong.observed == []
        assert statuses(wrong) == ["check"]


def test_numbers_without_a_name_are_of_the_contender_that_was_compared() -> None:
    mine = msgspec.structs.replace(RIGHT, system="pipad")
    whole = Row(id="q", paper="pipad", experiment="quality", params={"dataset": "x", "model": "m"},
                observed=[observation("loss", 1.0, epoch=0)], checks=[mine])  # fmt: skip
    wrong = row("w", status="check", reason="wrong", checks=[WRONG])
    assert statuses(wrong, whole) == ["check", VOID]


def spoilt(one: Row) -> Row:
    found = msgspec.structs.replace(one, status="check", reason="wrong")
    found.observed = []
    return found


def place(one: Row) -> tuple:
    """Whose result a row is, and of which workload of which experiment."""
    return contender_of(one), one.experiment, repr(one.params)


@pytest.mark.parametrize("name", ["arena", "operators", *PAPERS])
def test_no_verdict_rests_on_a_system_that_was_wrong(name) -> None:
    paper, run = get_paper(name), list(kept_runs(name).values())[-1]
    rows = run.store.written()
    mine = [one for one in rows if one.paper == paper.name and one.status == "ok"]
    for system in sorted({contender_of(one) for one in mine})[:3]:
        wrong = {one.id: place(one) for one in mine if contender_of(one) == system and one.checks}
        spoiled = [spoilt(one) if one.id in wrong else one for one in rows]
        of = {one.id: place(one) for one in spoiled}
        for verdict in evaluate(paper, spoiled).verdicts:
            places = {of[name] for name in verdict.rows}
            assert places.isdisjoint(wrong.values()), verdict.id
            assert system not in {name for name, *_ in places}, verdict.id
            assert verdict.verdict in UNMEASURED or verdict.rows


OTHER_NAME = msgspec.structs.replace(WRONG, system="another name")


def attempts(*checks, **fields) -> list[Row]:
    """Attempts of one process of a run, each with its check; None is a crash."""
    found = []
    for number, check in enumerate(checks, 1):
        one = row(f"x-r1.{number}" if number > 1 else "x-r1", cell_hash="x" * 8, **fields)
        if check is None:
            one = msgspec.structs.replace(one, status="crash", reason="it crashed")
        else:
            one = msgspec.structs.replace(one, checks=[check])
        if check in (WRONG, OTHER_NAME):
            one = msgspec.structs.replace(one, status="check", reason=check.words, observed=[])
        found.append(one)
    return found


def test_a_check_that_failed_in_an_earlier_attempt_stays() -> None:
    """A system that is wrong now and then passes once it has been started often enough."""
    (last,) = judged(attempts(WRONG, RIGHT))
    assert (last.id, last.status, last.observed) == ("x-r1.2", VOID, [])
    (before,) = last.failed_before
    assert (before.attempt, before.reason) == ("x-r1", WRONG.words)
    assert "x-r1: outputs" in last.reason
    assert cell_states([last]) == {"x" * 8: "failed"}
    assert len(wrong_results([last])) == 1
    assert unexpected([last], []) == [last]
    assert [one.status for one in judged([last])] == [VOID]  # judging again changes nothing


def test_of_contenders_of_a_cell_the_one_that_failed_before_falls_alone() -> None:
    numbers = [observation("step_time", 1.0, samples=[1.0], setting=name) for name in ("on", "off")]
    checks = [msgspec.structs.replace(RIGHT, system=name) for name in ("on", "off")]
    bad = msgspec.structs.replace(WRONG, system="on")
    fields = {"cell_hash": "x" * 8, "paper": "pipad", "experiment": "fig10", "params": {}}
    first = Row(id="x-r1", status="check", reason=bad.words, checks=[bad, checks[1]],
                observed=numbers[1:], **fields)  # fmt: skip
    second = Row(id="x-r1.2", checks=checks, observed=numbers, **fields)
    (found,) = judged([first, second])
    assert (found.status, found.observed) == ("ok", numbers[1:])
    assert set(found.dropped) == {"on"}
    assert "x-r1: outputs" in found.dropped["on"]


LATER = row("y", round=2, checks=[RIGHT])
RIVAL_ROW = row("z", system="pygt", checks=[RIGHT])


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([*attempts(WRONG, None, RIGHT), LATER, RIVAL_ROW], [VOID, VOID, "ok"]),
        (attempts(OTHER_NAME, RIGHT), [VOID]),  # it cannot be told apart
        (attempts(None, RIGHT), ["ok"]),
        (attempts(RIGHT, RIGHT), ["ok"]),
    ],
)
def test_what_failed_before_falls_in_all_rounds_and_spares_rivals(rows, expected) -> None:
    assert statuses(*rows) == expected


def test_a_store_and_its_copies_have_what_failed_before(tmp_path) -> None:
    with Store.create(tmp_path) as store:
        for one in attempts(None, WRONG, RIGHT):
            store.append(msgspec.structs.replace(one, run=store.run))
        assert [one.id for one in store.kept()] == ["x-r1.2", "x-r1.3"]
    for found in (Store.open(store.path), store):
        assert [one.status for one in found.rows()] == [VOID]
        assert [one.id for one in found.written()] == ["x-r1.3"]
