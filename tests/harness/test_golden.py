"""The kept runs say what was recorded of them: findings, verdicts, answers, points, cells."""

from __future__ import annotations

import pytest

from tests.golden.record import PAPERS, differences


@pytest.mark.slow
@pytest.mark.parametrize("paper", PAPERS)
def test_kept_runs_say_what_was_recorded(paper: str) -> None:
    """A change that is meant is recorded by `python -m tests.golden write PAPER`."""
    found = differences(paper)
    assert not found, "\n".join(list(found)[:20])
