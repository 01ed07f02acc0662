"""Rules of the table of observations that no single function can hold to.

An exception stands here with its reason; a new one is a change of this list.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

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
DRAWING = {
    "systems/arena/experiment.py": "races of tasks",
    "systems/operators/race.py": "races of operators",
    "systems/operators/experiments/ceilings.py": "limits",
    "systems/pipad/experiments/ablation.py": "no form of a ladder of techniques",
    "systems/gnnflow/experiments/fig8.py": "no form of a ladder of techniques",
    "systems/dgc/experiments/fig12.py": "no form of a ladder of techniques",
    "systems/dgc/experiments/fig18.py": "no form of curves",
    "systems/gnnflow/experiments/contenders.py": "reasons of each contender",
}
"""Modules of papers that form points of figures themselves: what no form draws yet."""
MENTIONED = re.compile(rf"\.({'|'.join(sorted(TEXT_FIELDS))})\b")
METRIC = re.compile(r"\b(observe|observation|where|observed|number)\(\s*([^(),]*,\s*)?f[\"']")


def sources(*folders: str) -> Iterator[tuple[str, str]]:
    """Name and text of each module in these folders."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), path.read_text()


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


def test_nothing_is_decided_by_words_for_people() -> None:
    """A reason, note or title is made of fields and read by people only."""
    found = {
        name
        for name, text in sources(*CODE)
        if MENTIONED.search(text) and any(map(decides_by_words, ast.walk(ast.parse(text))))
    }
    assert not found - set(DECIDED)
    assert not set(DECIDED) - found, "these do it no more: take them off the list"


def test_only_the_edge_prints() -> None:
    """Floors below the terminal hand fields on and print nothing."""
    edge = ("harness/cli/", "harness/terminal/")
    printing = {
        name
        for name, text in sources(*FLOORS)
        if not name.startswith(edge) and re.search(r"(?<![\w.])print\(", text) and any(
            isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print"
            for node in ast.walk(ast.parse(text))
        )
    }  # fmt: skip
    assert not printing - set(PRINTS)
    assert not set(PRINTS) - printing, "these do it no more: take them off the list"


def test_no_dimension_travels_in_the_name_of_a_metric() -> None:
    """Names of metrics are written in full, not assembled."""
    assert not [name for name, text in sources(*CODE) if METRIC.search(text)]


def test_a_class_has_a_name_of_its_own() -> None:
    """A name stands for one thing in all code; an experiment's is unique in its paper."""
    names = Counter(
        (place.split("/")[1] if "/experiments/" in place else "", name)
        for place, text in sources(*FLOORS, "benchmarks", "scripts")
        for name in re.findall(r"^ *class (\w+)[(:]", text, re.MULTILINE)
    )
    assert not [name for name, count in names.items() if count > 1]


def test_papers_say_claims_and_figures_in_forms() -> None:
    """No function of theirs takes a claim, and none returns points but those of the list."""
    judging, drawing = [], set()
    for name, text in sources("systems"):
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.FunctionDef | ast.Lambda):
                continue
            if any(
                ast.unparse(one.annotation) == "Claim" for one in node.args.args if one.annotation
            ):
                judging.append(f"{name}:{node.lineno}")
            returns = getattr(node, "returns", None)
            named = "points" in getattr(node, "name", "") and node.name != "points"
            if returns is not None and named and "list[dict" in ast.unparse(returns):
                drawing.add(name)
    assert not judging
    assert not drawing - set(DRAWING)
    assert not set(DRAWING) - drawing, "these do it no more: take them off the list"
