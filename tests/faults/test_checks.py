"""The checks of the fault campaign bite: each is shown something wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
if str(ROOT) not in sys.path:
    sys.path.append(str(ROOT))  # behind all else: the folders there have names of known packages

from dgbench.harness.store import Row, Store  # noqa: E402
from tests.faults import checks  # noqa: E402
from tests.faults.checks import MARK, Loss  # noqa: E402


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    with Store.create(tmp_path_factory.mktemp("runs")) as store:
        for number in range(3):
            store.append(Row(id=f"a-r{number}", cell_hash="a", paper="p", round=number + 1))
    return store.rows_path.read_bytes()


def test_good_lines_are_what_the_store_wrote(text):
    assert b"".join(checks.good_lines(text)) == text
    assert len(checks.rows_sound(text)) == 3
    checks.rows_intact(text, text + b"more\n")
    checks.rows_intact(text[:-1], text)


@pytest.mark.parametrize("place", range(0, 300, 7))
def test_a_flipped_bit_makes_a_line_bad(text, place):
    flipped = bytearray(text)
    flipped[place] ^= 4
    assert len(checks.good_lines(bytes(flipped))) < 3
    with pytest.raises(Loss):
        checks.rows_sound(bytes(flipped))


def test_a_lost_moved_or_doubled_row_is_a_loss(text):
    one, two, three = checks.good_lines(text)
    for after in (one + two, one + three, two + one + three, b"junk\n" + text, b""):
        with pytest.raises(Loss):
            checks.rows_intact(text, after)
    with pytest.raises(Loss, match="two rows"):
        checks.rows_sound(text + one)


def test_a_step_without_row_and_a_row_without_step_are_losses(text):
    rows = checks.rows_sound(text)
    cell = {"hash": "a", "cell": {"repeats": 3, "params": {}}}
    checks.every_step(rows, {"cells": [cell]})
    with pytest.raises(Loss, match="1 of 3 processes have no row"):
        checks.every_step(rows[:2], {"cells": [cell]})
    with pytest.raises(Loss, match="belong to no process"):
        checks.every_step(rows, {"cells": [{"hash": "a", "cell": {"repeats": 2, "params": {}}}]})


def test_leftovers_are_seen_and_what_belongs_there_is_not(tmp_path):
    runs, temporary = tmp_path / "runs", tmp_path / "t"
    with Store.create(runs) as store:
        temporary.mkdir()
        assert checks.leftovers(runs, temporary) == []
        left = [
            ".new-abcdefgh",
            f"{store.path.name}/.run.json.x",
            f"{store.path.name}/logs/a.result",
        ]
        for name in left:
            (runs / name).write_text("")
        (temporary / "dgbench-1").mkdir()
        assert checks.leftovers(runs, temporary) == [*sorted(left), "TMPDIR/dgbench-1"]


def test_a_marked_process_is_seen_while_it_lives():
    environment = {**os.environ, MARK: "test-of-checks"}
    command = [sys.executable, "-S", "-c", "print(1, flush=True); input()"]
    child = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    )
    assert child.stdout.readline()
    assert [pid for pid, _ in checks.marked("test-of-checks")] == [child.pid]
    assert checks.marked("test-of-checks", [child.pid]) == []
    child.kill()
    child.wait()
    assert checks.marked("test-of-checks") == []
    assert not checks.living(child.pid)
    child.stdin.close()
    child.stdout.close()


@pytest.mark.skipif(not os.path.exists("/proc/self/environ"), reason="looks into /proc")
def test_a_sample_of_the_campaign_loses_nothing():
    """The whole of it is `nox -s faults`."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults", "--sample"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 losses" in done.stdout
    assert json.loads(done.stdout.split(" faults injected")[0].split()[-1]) >= 8
