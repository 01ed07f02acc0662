"""Rules of the table of observations that no single function can hold to.

An exception stands here with its reason; a new one is a change of this list.
"""

from __future__ import annotations

import ast
import gc
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CODE = ("lab", "systems", "harness")
FLOORS = (*CODE, "runtime", "models", "datasets", "kernels_cuda")

TEXT_FIELDS = {
    "about", "caption", "hint", "label", "note", "notes", "question", "reading", "reason",
    "statement", "title",
}  # fmt: skip
"""Fields that hold words for people."""
DECIDED = {"harness/runner/outcome.py": "what exceptions of libraries say"}
"""Modules that decide something by words for people."""
PRINTS = {
    "harness/runner/child.py": "the log of a cell's process",
    "runtime/ranks/__main__.py": "results of a command for other programs, one line a rank",
}
"""Modules beside the terminal's, the commands' and `__main__` that print."""
Modules = list[tuple[str, list[ast.AST]]]
"""Names, and all nodes of their trees."""


@pytest.fixture(scope="module")
def floors() -> Modules:
    """Modules of all floors, parsed once for all rules."""
    return python_files(*FLOORS)


@pytest.fixture(scope="module")
def modules(floors: Modules) -> Modules:
    """Modules of the floors that read rows."""
    return [(name, nodes) for name, nodes in floors if name.split("/")[0] in CODE]


def python_files(*folders: str) -> Modules:
    """Name and nodes of each module in these folders."""
    gc.disable()  # a million nodes, and none in a circle: looking for some takes as long as parsing
    try:
        return [
            (path.relative_to(ROOT).as_posix(), list(ast.walk(ast.parse(path.read_text()))))
            for folder in folders
            for path in sorted((ROOT / folder).rglob("*.py"))
        ]
    finally:
        gc.freeze()
        gc.enable()


def decides_by_words(node: ast.AST) -> bool:
    """Return True for a search in, or a comparison of, a field that holds words for people."""

    def told(one: ast.AST) -> bool:
        return isinstance(one, ast.Attribute) and one.attr in TEXT_FIELDS

    if isinstance(node, ast.Compare):
        sides = list(zip([node.left, *node.comparators], node.ops, node.comparators, strict=False))
        return any(
            (isinstance(op, ast.Eq | ast.NotEq) and told(left) and bool(words_of(right)))
            or (isinstance(op, ast.In) and told(right))
            or (isinstance(op, ast.NotIn) and told(right) and right.attr != "notes")
            for left, op, right in sides
        )
    if isinstance(node, ast.comprehension):
        return told(node.iter) and any("startswith" in ast.dump(test) for test in node.ifs)
    searching = ("startswith", "endswith", "find", "index", "removeprefix", "removesuffix")
    return isinstance(node, ast.Call) and getattr(node.func, "attr", "") in searching and told(
        getattr(node.func, "value", node)
    )  # fmt: skip


def words_of(node: ast.AST) -> str:
    """The constant text of a node, the fixed parts of a formatted one included; or ""."""
    if isinstance(node, ast.JoinedStr):
        return " ".join(words_of(part) for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def test_nothing_is_decided_by_words_for_people(modules: Modules) -> None:
    """A reason, note or title is made of fields and read by people only."""
    found = {n for n, nodes in modules if any(decides_by_words(node) for node in nodes)}
    assert not found - set(DECIDED)
    assert not set(DECIDED) - found, "these do it no more: take them off the list"


def test_only_the_edge_prints(floors: Modules) -> None:
    """Floors below the terminal hand fields on and print nothing."""
    printing = {
        name
        for name, nodes in floors
        if not name.startswith(("harness/cli/", "harness/terminal/", "harness/device_session/"))
        and any(
            isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print" for node in nodes
        )
    }
    assert not printing - set(PRINTS)
    assert not set(PRINTS) - printing, "these do it no more: take them off the list"


def test_no_dimension_travels_in_the_name_of_a_metric(modules: Modules) -> None:
    """Names of metrics are written in full, not assembled."""
    asked = {"observe", "observation", "where", "observed", "number"}
    found = []
    for name, nodes in modules:
        for node in nodes:
            if isinstance(node, ast.Call) and node.args:
                called = getattr(node.func, "attr", getattr(node.func, "id", ""))
                if called in asked and any(isinstance(a, ast.JoinedStr) for a in node.args[:2]):
                    found.append(f"{name}:{node.lineno}")
    assert not found


def test_a_class_has_a_name_of_its_own(floors: Modules) -> None:
    """A name stands for one thing in all code; an experiment's is unique in its paper."""
    names = Counter(
        (place.split("/")[1] if "/experiments/" in place else "", node.name)
        for place, nodes in [*floors, *python_files("benchmarks", "scripts")]
        for node in nodes if isinstance(node, ast.ClassDef)
    )  # fmt: skip
    assert not [name for name, count in names.items() if count > 1]
