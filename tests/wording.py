"""Wording of reasons and answers, in one file.

A test asserts fields; of a sentence it says `wording(text)`, and `wording.json` has the sentences.
`DGBENCH_WORDING=update python -m pytest FILES` writes those of the tests that run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

KEPT = Path(__file__).with_name("wording.json")


def kept() -> dict[str, list[str]]:
    """Sentences by test, in the order in which it says them."""
    return json.loads(KEPT.read_text())


@pytest.fixture
def wording(request: pytest.FixtureRequest) -> Iterator[Callable[[str], None]]:
    """Compare a sentence with the one that is kept; the test fails if one is left out."""
    said: list[str] = []
    yield said.append
    name = request.node.nodeid.rpartition("tests/")[2]
    if os.environ.get("DGBENCH_WORDING") == "update":
        found = {one: texts for one, texts in sorted((kept() | {name: said}).items()) if texts}
        KEPT.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    assert said == kept().get(name, []), (
        f"DGBENCH_WORDING=update python -m pytest {request.node.nodeid}"
    )
