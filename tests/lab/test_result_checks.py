"""Checks that dgbench formed, and those that a plugin handed in."""

from __future__ import annotations

import msgspec
import torch

from dgbench.lab.result_checks import (
    ResultCheck,
    at_most,
    close,
    equal,
    of_contender,
    summarised,
    with_frames,
    with_owners,
)  # fmt: skip
from dgbench.systems.base import oracle

RESULT = torch.arange(4.0)


def formed_by_dgbench() -> ResultCheck:
    """A check by a function that runs as code of the oracle's module."""
    space = vars(oracle)
    exec("def _of_test(a): return close('outputs', a, a, 1e-5, against='oracle')", space)
    try:
        return space["_of_test"](RESULT)
    finally:
        del space["_of_test"]


def own(*checks: ResultCheck) -> list[bool]:
    return [check.own for check in with_owners(checks)]


def test_a_check_is_dgbench_s_where_its_code_formed_it() -> None:
    found = formed_by_dgbench()
    assert own(found) == [False]
    assert own(*of_contender("a", [found], dataset="x")) == [False]
    assert own(*with_frames([found], [3, 1])) == [False]
    assert own(*summarised([found, found])) == [False]


def test_a_check_of_other_code_is_its_own_whatever_it_says() -> None:
    about = {"against": "own oracle"}
    of_test = [
        close("outputs", RESULT, RESULT, 1e-5, **about),
        equal("rows", RESULT, RESULT, **about),
        at_most("counters", 0.0, 0.0, compared=3, **about),
        ResultCheck(of="outputs", gap=0.0, tolerance=1e-5, compared=3, **about),
    ]
    assert own(*of_test) == [True] * 4
    assert own(*of_contender("a", of_test), *summarised(of_test)) == [True] * (4 + 3)


def test_another_contender_or_gap_makes_it_another_check() -> None:
    found = formed_by_dgbench()
    assert own(msgspec.structs.replace(found, system="b")) == [True]
    assert own(msgspec.structs.replace(found, gap=1e-9)) == [True]
