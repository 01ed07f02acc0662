"""Every kept input still gets its answer, and a search finds what it is there to find."""

from __future__ import annotations

import pytest

from dgbench.runtime.errors import DataError
from tests.fuzz import mutate
from tests.fuzz.attempt import Tally, limits, watched
from tests.fuzz.target import Target, sane, targets


@pytest.mark.parametrize("name", targets())
def test_kept_inputs_are_read_or_refused(name):
    target, tally = targets()[name], Tally(name)
    with limits():
        for data in target.seeds():
            watched(target, data, tally)
    assert not tally.failed, "\n".join(f.trace for f in tally.findings.values())
    assert tally.accepted, "no input of this target is accepted, so it proves nothing"


def test_mutation_finds_crash_hang_and_nonsense(monkeypatch):
    monkeypatch.setattr("tests.fuzz.attempt.SECONDS", 0.5)
    hung = []

    def sloppy(data: bytes) -> None:
        if not data.startswith(b"["):
            raise DataError("it starts otherwise")
        number = int(data.strip(b"[] \n") or b"0")  # crashes
        sane(number >= 0, "less than nothing")
        if number == 7 and not hung:
            hung.append(number)
            while True:
                pass

    target = Target("sloppy", sloppy, lambda: [b"[12]", b"x"], "json", (b"-1", b"7"))
    tally = mutate.run(target, runs=3000, seconds=60, seed=1)
    assert {key.split()[0] for key in tally.findings} == {"ValueError", "Nonsense", "Hang"}
    assert tally.inputs == 3000
