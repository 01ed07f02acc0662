"""The ledger is read strictly; evaluation answers every id once, whatever the checks do."""

from __future__ import annotations

from pathlib import Path

import pytest
from passed_checks import PASSED

from dgbench.harness.claims import count, evaluate, load_ledger
from dgbench.harness.store import Row
from dgbench.lab.judging import note_read
from dgbench.lab.paper import Finding, Paper
from dgbench.runtime.errors import InvalidInputError

CLAIM = """
- id: toy-{n}
  where: Table {n}
  statement: It is faster.
  kind: speedup
  value: {value}
  unit: x
  baseline: null
  notes: null
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "claims.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def paper(path: Path, checks) -> Paper:
    return Paper(
        name="toy", title="Toy", venue="Nowhere 2000", about="A toy.", system="toy", ledger=path,
        experiments=(), checks=checks,
    )  # fmt: skip


def test_every_id_has_one_verdict_whatever_its_check_does(tmp_path):
    path = write(tmp_path, "".join(CLAIM.format(n=n, value=2) for n in range(1, 6)))

    def good(claim, rows):
        note_read(rows[0], "edges")
        return Finding(measured=2.1, low=2.0, high=2.2, rows=["r1"])

    def raises(claim, rows):
        raise ZeroDivisionError("no baseline")

    checks = {
        "toy-1": good,
        "toy-2": raises,
        "toy-3": lambda claim, rows: None,
        "toy-4": lambda claim, rows: 2.0,
        "toy-9": good,
    }
    rows = [Row(id="r1", paper="toy", experiment="e", checks=[PASSED])]
    found = evaluate(paper(path, checks), rows)
    assert [v.id for v in found.verdicts] == [f"toy-{n}" for n in range(1, 6)]
    assert [v.verdict for v in found.verdicts] == ["reproduced"] + ["not run here"] * 4
    assert "check failed: ZeroDivisionError: no baseline" in found.verdicts[1].reason
    assert found.verdicts[1].broken
    assert "check failed" in found.verdicts[3].reason
    assert "no check" in found.verdicts[4].reason
    assert any("toy-2" in warning for warning in found.warnings)
    assert any("'toy-9'" in warning for warning in found.warnings)
    assert sum(found.counts.values()) == 5 == sum(count(found.verdicts).values())


def test_rows_of_a_failed_check_take_no_part(tmp_path):
    def row(name, status, **params):
        about = {"paper": "toy", "experiment": "e", "params": params, "checks": [PASSED]}
        return Row(id=name, status=status, **about)

    seen = []

    def check(claim, rows):
        seen.extend(row.id for row in rows)

    path = write(tmp_path, CLAIM.format(n=1, value=2))
    rows = [row("a", "ok", system="x"), row("b", "check", system="y"), row("c", "oom", system="y")]
    evaluate(paper(path, {"toy-1": check}), [*rows, row("d", "ok", system="y")])
    assert seen == ["a", "c"]


def test_a_finding_rests_on_rows_that_it_was_given(tmp_path):
    path = write(tmp_path, "".join(CLAIM.format(n=n, value=2) for n in range(1, 4)))
    rows = [
        Row(id="r1", paper="toy", experiment="e", checks=[PASSED]),
        Row(id="r2", paper="toy", experiment="e", params={"n": 2}),  # compared with nothing
    ]

    def found(*names):
        def check(claim, rows):
            note_read(rows[0], "edges")
            return Finding(measured=2.0, rows=list(names))

        return check

    checks = {"toy-1": found("r1"), "toy-2": found("r1", "r2"), "toy-3": found()}
    verdicts = evaluate(paper(path, checks), rows).verdicts
    assert [v.verdict for v in verdicts] == ["reproduced", "not run here", "not run here"]
    assert [v.broken for v in verdicts] == [False, True, True]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("  tolerance: 0.1\n  tolerance: 0.9", "'tolerance' stands twice"),  # the last one won
        ("  value: .nan", "value holds nan"),  # compares with nothing, so never agreed
        ("  needs: {gpus: one}", "needs: Expected `int"),  # the report fell over it later
        ("  statement: ' '", "'statement' is empty"),
        ("  id: ''", "'id' is empty"),
        ("  hardware: !!timestamp x", "form"),
    ],
)
def test_a_claim_that_would_mean_something_else_is_refused(tmp_path, line, words):
    key = line.strip().partition(":")[0]
    kept = [old for old in CLAIM.format(n=1, value=2).splitlines() if f"{key}:" not in old]
    if key == "id":
        kept, line = [], "- id: ''\n  where: T\n  statement: S\n  kind: speedup\n  value: 1"
    text = "\n".join([*kept, line, ""])
    with pytest.raises(InvalidInputError, match=words):
        load_ledger(write(tmp_path, text))
