"""Tests assert fields; words for people are in `tests/wording.json`."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from wording import kept

TESTS = Path(__file__).parents[1]

MOST = {
    "cuda": 5,
    "datasets": 18,
    "faults": 0,
    "fuzz": 0,
    "harness": 281,
    "kernels": 1,
    "lab": 7,
    "models": 0,
    "runtime": 11,
    "systems": 112,
}
"""Phrases that tests of a folder may still look for; each number only falls."""


def phrases(tree: ast.AST) -> int:
    """Count comparisons with, and searches for, three words or more.

    What an exception says (`match=`) is how it is told from another, and does not count.
    """
    found = 0
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            found += any(map(is_phrase, (node.left, *node.comparators)))
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in (
            "startswith", "endswith", "count",
        ):  # fmt: skip
            found += bool(node.args) and is_phrase(node.args[0])
    return found


def is_phrase(node: ast.AST) -> bool:
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    texts = [part.value for part in parts if isinstance(part, ast.Constant)]
    return len(" ".join(text for text in texts if isinstance(text, str)).split()) >= 3


@pytest.mark.parametrize("folder", MOST)
def test_phrases_in_tests_only_become_fewer(folder: str) -> None:
    found = sum(phrases(ast.parse(p.read_text())) for p in (TESTS / folder).rglob("test_*.py"))
    assert found <= MOST[folder]


def test_every_kept_sentence_belongs_to_a_test() -> None:
    for name, said in kept().items():
        path, _, test = name.partition("::")
        assert f"def {test.partition('[')[0]}(" in (TESTS / path).read_text(), name
        assert said, name


def test_a_phrase_is_seen() -> None:
    source = 'assert "no such row" in a\nassert f"{n} of 3 rows" == b\nassert c == "not here"\n'
    assert phrases(ast.parse(source)) == 2
