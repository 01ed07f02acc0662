"""Every kept input still gets its answer, and a search finds what it is there to find."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = str(Path(__file__).parents[2])
if ROOT not in sys.path:  # plain `pytest` adds the folder of the test, not that of the package
    sys.path.insert(0, ROOT)

from dgbench.runtime.errors import DataError  # noqa: E402
from tests.fuzz import generate, mutate  # noqa: E402
from tests.fuzz.attempt import Tally, limits, watched  # noqa: E402
from tests.fuzz.target import CORPUS, Target, sane, targets  # noqa: E402

MAX_BYTES = 2_000_000


@pytest.mark.parametrize("name", targets())
def test_kept_inputs_are_read_or_refused(name):
    target = targets()[name]
    tally = Tally(name, "replay")
    with limits():
        for data in target.seeds():
            watched(target, data, tally)
    assert not tally.failed, "\n".join(f.trace for f in tally.findings.values())
    assert tally.accepted, "no input of this target is accepted, so it proves nothing"


def test_the_corpus_is_small_and_every_folder_has_a_target():
    kept = [p for p in CORPUS.rglob("*") if p.is_file()]
    assert sum(p.stat().st_size for p in kept) < MAX_BYTES
    assert {p.parent.name for p in kept} <= set(targets())


HUNG: list[int] = []


def sloppy(data: bytes) -> None:
    """A reader with a crash, a hang and a wrong answer in it."""
    if not data.startswith(b"["):
        raise DataError("it starts otherwise")
    number = int(data.strip(b"[] \n") or b"0")  # crashes
    sane(number >= 0, "less than nothing")
    if number == 7 and not HUNG:
        HUNG.append(number)
        while True:
            pass


def made(kind: str) -> Target:
    return Target("sloppy", "", sloppy, lambda: [b"[12]", b"x"], kind, (b"-1", b"7"))


@pytest.mark.parametrize("kind", ["bytes", "lines", "json"])
def test_mutation_finds_crash_hang_and_nonsense(kind, monkeypatch):
    monkeypatch.setattr("tests.fuzz.attempt.SECONDS", 0.5)
    HUNG.clear()
    tally, new = mutate.run(made(kind), runs=3000, seconds=60, seed=1)
    assert {key.split()[0] for key in tally.findings} == {"ValueError", "Nonsense", "Hang"}
    assert tally.accepted
    assert tally.refused
    assert tally.inputs == 3000
    assert new
    HUNG.clear()
    again, _ = mutate.run(made(kind), runs=3000, seconds=60, seed=1)
    assert again.findings.keys() == tally.findings.keys()


def test_hypothesis_finds_them_too():
    tally, _ = generate.run(made("json"), runs=150, seconds=60, seed_=1)
    assert {"ValueError", "Nonsense"} <= {key.split()[0] for key in tally.findings}
    assert tally.inputs >= 100


def test_memory_is_a_finding():
    def greedy(data: bytes) -> None:
        bytearray(1 << 40)

    target, tally = Target("greedy", "", greedy, lambda: [b""], "bytes", ()), Tally("greedy", "")
    with limits():
        watched(target, b"", tally)
    assert next(iter(tally.findings)).startswith("MemoryError")
