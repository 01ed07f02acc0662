"""`dgbench arena` as a command: mistakes, and both divisions in one run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dgbench.harness.cli import main
from dgbench.harness.store import Store
from dgbench.runtime.threads import cores


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, warm_python: list[str]) -> tuple[Path, str]:
    """Folder and standard output of a run of the cheapest task in both divisions, one thread."""
    folder = tmp_path_factory.mktemp("both")
    words = ["arena", "graph-update", "--preset", "smoke", "--device", "cpu", "--offline"]
    done = subprocess.run(
        [*warm_python, "-m", "dgbench", *words, "--division", "both", "--threads", "1"],
        env=os.environ | {"DGBENCH_RESULTS": str(folder)}, capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (run,) = folder.glob("20*")
    return run, done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--threads", "9999"), f"--threads is 9999, allowed: 1 to {cores()}, the cores"),
        (("--threads", "0"), f"--threads is 0, allowed: 1 to {cores()}, the cores"),
        (("--division", "best"), "--division is 'best', allowed: base, tuned, both"),
        (("--division", "tuned", "--resume", "last"), "leave out --division"),
        (("weighted-draw", "--division", "tuned", "--preset", "smoke"), "it times one thread"),
    ],
)
def test_a_mistake_names_the_option_and_what_is_allowed(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(["arena", *words])
    assert end.value.code == 2
    assert said in " ".join(capsys.readouterr().err.split())


def ran(store: Store, division: str | None) -> list[Any]:
    return [
        row for row in store.rows()
        if row.status == "ok" and row.paper == "arena" and row.params.get("division") == division
    ]  # fmt: skip


@pytest.mark.nightly
def test_rows_carry_both_divisions_with_the_same_checks(both: tuple[Path, str]) -> None:
    store = Store.open(both[0])
    (base,), (tuned,) = ran(store, None), ran(store, "tuned")
    assert [(one.of, one.system) for one in tuned.checks] == [
        (one.of, one.system) for one in base.checks
    ]
    assert all(check.passed for check in tuned.checks)
    chosen = [one for one in tuned.observations if one.metric == "tuned_setting"]
    assert {one.value for one in chosen if one.dims["of"] == "threads"} == {1}
    assert not [one for one in base.observations if one.metric == "tuned_setting"]


@pytest.mark.nightly
def test_threads_of_the_command_stand_in_run_and_provenance(both: tuple[Path, str]) -> None:
    store = Store.open(both[0])
    assert store.info["threads"] == 1
    rows = [*ran(store, None), *ran(store, "tuned")]
    assert {store.provenance()[row.provenance]["settings"]["threads"] for row in rows} == {1}
