"""The gate on counters and samples: what grew is seen, what wavers is not."""

from __future__ import annotations

import json
import os

import pytest
from memory_runs import noisy

from dgbench.harness.cli import main
from dgbench.harness.compare import NOT_SAME
from dgbench.harness.history import compare_histories, newest_results, read_state
from dgbench.runtime.errors import InvalidInputError

RESULTS = '{"result_columns": ["result", "params"], "results": {"a": %s}}'
COLUMNS = ["result", "params", "version", "started_at", "duration", "samples"]


def asv_file(path, commit="", date=0, **benchmarks):
    """A result of asv: name -> number, `[samples]`, or {parameter: number}."""
    results = {}
    for name, value in benchmarks.items():
        if isinstance(value, dict):
            results[f"suite.{name}"] = [list(value.values()), [list(value)], "v", 0, 0.1]
        elif isinstance(value, list):
            results[f"suite.{name}"] = [[sum(value) / len(value)], [], "v", 0, 0.1, [value]]
        else:
            results[f"suite.{name}"] = [None if value is None else [value], [], "v", 0, 0.1]
    found = {"result_columns": COLUMNS, "results": results, "commit_hash": commit, "date": date}
    path.write_text(json.dumps(found))
    return path


def test_the_gate_sees_planted_regressions_and_lets_noise_pass(tmp_path, capsys):
    """The command of `nox -s asv`, with counters and samples in one state; the newest counts."""

    def compare(*arguments) -> int:
        with pytest.raises(SystemExit) as ended:
            main(["compare", *map(str, arguments)])
        return ended.value.code

    counters = {f"counter {i}": 1000 + i for i in range(40)}
    races = {f"race{i}": noisy(0.2 + i / 10, i, 12, 0.04) for i in range(30)}
    folder, baseline = tmp_path / "results" / "machine", tmp_path / "baseline.json"
    folder.mkdir(parents=True)
    (folder / "machine.json").write_text("{}")
    with pytest.raises(InvalidInputError):
        newest_results(tmp_path / "results")
    assert compare(baseline, asv_file(tmp_path / "a.json", counts=counters, **races), "--keep") == 0
    again = {f"race{i}": noisy(0.2 + i / 10, 100 + i, 12, 0.04) for i in range(30)}
    worse = again | {"race7": [1.3 * v for v in again["race7"]]}
    better = again | {"race7": [0.7 * v for v in again["race7"]]}
    states = [
        (counters, again, None), (counters, worse, "suite.race7"), (counters, better, None),
        (counters | {"counter 3": 1004}, again, "suite.counts(counter 3)"),
        (counters | {"counter 3": 1002}, again, None),
    ]  # fmt: skip
    for number, (counts, samples, bad) in enumerate(states):
        asv_file(folder / f"{number}.json", counts=counts, **samples)
        os.utime(folder / f"{number}.json", (2e9 + number, 2e9 + number))
        capsys.readouterr()
        assert compare(baseline, tmp_path / "results") == (NOT_SAME if bad else 0)
        marked = [x for x in capsys.readouterr().out.splitlines() if x.startswith("WORSE")]
        assert [line.split()[1:] for line in marked] == [] if bad is None else bad in marked[0]
    assert compare("last", "last", "--keep") == 2


def test_what_fails_or_is_gone_fails_the_gate_and_what_is_new_does_not(tmp_path):
    old = asv_file(tmp_path / "old.json", kept=1, broken=2, dropped=3)
    new = asv_file(tmp_path / "new.json", kept=1, broken=None, added=4)
    found = compare_histories(old, new)
    words = {step.name.removeprefix("suite."): step.word for step in found.steps}
    assert words == {"kept": "SAME", "broken": "FAILS", "dropped": "GONE", "added": "NEW"}
    assert (found.exit_code, compare_histories(old, old).exit_code) == (NOT_SAME, 0)


def test_other_files_and_numbers_that_would_overflow_or_fill_the_memory_are_refused(tmp_path):
    names = RESULTS % json.dumps([None, [list("0123456789")] * 8])  # a hundred million
    for text in ("{", '{"a": {"samples": [1, -2]}}', "[" * 100_000, '{"a": Infinity}', names):
        (tmp_path / "b.json").write_text(text)
        with pytest.raises(InvalidInputError):
            read_state(tmp_path / "b.json")
