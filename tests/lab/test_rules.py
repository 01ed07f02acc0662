"""Rules of the table of observations that no single function can hold to.

An exception stands here with its reason; a new one is a change of this list.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CODE = ("lab", "systems", "harness")

PATTERNS = {
    "harness/doctor.py": "what programs print of their versions",
    "harness/figures/svg.py": "the text of an SVG file",
    "harness/machine/known.py": "what the system prints of its processors",
    "harness/plan/plan.py": "whether a reason names a GPU",
    "harness/report/pictures.py": "the size of an SVG file",
    "harness/report/run.py": "file names",
    "harness/report/systems.py": "annotations of methods; TO GO: names of the history suite",
    "harness/runner/child.py": "what exceptions of libraries say",
    "harness/runner/readable.py": "control characters",
    "harness/states.py": "ids of runs",
    "harness/store/old_names/__init__.py": "names from before schema 3",
    "harness/store/old_names/texts.py": "params and notes that hold several things",
    "lab/metrics.py": "what a name may be",
    "systems/base/calibration.py": "file names",
    "systems/gnnflow/experiments/table5.py": "the text of the cards, to check their reader",
}
"""Modules that match patterns, and what in."""
RATIOS = {
    "lab/compare.py": "the place",
}
"""Modules that form ratios with intervals."""
SPLITS = {
    "harness/claims/shown.py": "units of printed numbers",
    "harness/figures/palette.py": "TO GO: a system's title at the head of a series",
    "harness/figures/svg.py": "the text of an SVG file",
    "harness/figures/words.py": "lines that are broken, decimals of a number",
    "harness/report/run.py": "names of processors",
    "harness/report/systems.py": "TO GO: names of the history suite",
    "harness/report/words.py": "decimals of a number",
    "harness/states.py": "what people type",
    "harness/store/old_names/__init__.py": "names from before schema 3",
    "harness/store/old_names/texts.py": "params and notes that hold several things",
    "lab/charts.py": "TO GO: `failed` and series of points, written and read here alone",
    "lab/metrics.py": "what a name may be",
    "lab/printed.py": "ids of claims, decimals of a printed number",
}
"""Modules of lab, and of what is told by the harness, that take a text apart."""
Modules = list[tuple[str, ast.Module]]
"""Names and trees."""
EXPERIMENT_CLASSES = "/experiments/"
"""Where classes are named by a figure or a table, and are unique in their paper only."""
TOLD = ("claims", "figures", "plugins", "report", "store", "terminal")


@pytest.fixture(scope="module")
def modules() -> Modules:
    """Name and tree of each module, parsed once for all rules."""
    return [
        (path.relative_to(ROOT).as_posix(), ast.parse(path.read_text()))
        for folder in CODE
        for path in sorted((ROOT / folder).rglob("*.py"))
    ]


def imported(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize(
    ("wanted", "allowed"),
    [
        ({"re"}, PATTERNS),
        ({f"dgbench.runtime.statistics.{n}" for n in ("paired_ratio", "pooled_ratio")}, RATIOS),
    ],
    ids=["patterns", "ratios"],
)  # fmt: skip
def test_only_named_modules_do_it(
    modules: Modules, wanted: set[str], allowed: dict[str, str]
) -> None:
    found = {name for name, tree in modules if imported(tree) & wanted}
    assert not found - set(allowed)
    assert not set(allowed) - found, "these do it no more: take them off the list"


def test_only_named_modules_take_texts_apart(modules: Modules) -> None:
    """Texts are made of fields: nothing is split off a title, a note or a name."""
    found = set()
    for name, tree in modules:
        place = name.split("/")
        if place[0] == "systems" or (
            len(place) > 2 and place[0] == "harness" and place[1] not in TOLD
        ):
            continue
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in ("partition", "rpartition", "split", "rsplit")
                and node.args
                and isinstance(node.args[0], ast.Constant)
                and node.args[0].value not in ("\n", b"\n")  # lines
            ):
                found.add(name)
    assert not found - set(SPLITS)
    assert not set(SPLITS) - found, "these do it no more: take them off the list"


def test_no_number_of_a_row_is_asked_for_by_a_name(modules: Modules) -> None:
    """Old fields of rows are read where old rows are, and nowhere else."""
    old = {"values", "units", "counters", "phases", "samples"}
    found = [
        f"{name}:{node.lineno}"
        for name, tree in modules
        if name != "harness/store/row.py"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr in old
        and isinstance(node.value, ast.Name)
        and node.value.id == "row"
        and name != "harness/figures/failed_cells.py"  # a row of a table that is drawn
    ]
    assert not found


def test_no_dimension_travels_in_the_name_of_a_metric(modules: Modules) -> None:
    """Names of metrics are written in full, not assembled."""
    asked = {"observe", "observation", "where", "observed", "number"}
    found = []
    for name, tree in modules:
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and node.args:
                called = getattr(node.func, "attr", getattr(node.func, "id", ""))
                if called in asked and any(isinstance(a, ast.JoinedStr) for a in node.args[:2]):
                    found.append(f"{name}:{node.lineno}")
    assert not found


def test_a_class_has_a_name_of_its_own() -> None:
    """A name stands for one thing in all code; an experiment's is unique in its paper."""
    places: dict[str, list[str]] = {}
    for folder in (*CODE, "runtime", "datasets", "models", "kernels_cuda", "benchmarks", "scripts"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            place = path.relative_to(ROOT).as_posix()
            owner = place.split("/")[1] + " " if EXPERIMENT_CLASSES in place else ""
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    places.setdefault(owner + node.name, []).append(f"{place}:{node.lineno}")
    assert not {name: found for name, found in places.items() if len(found) > 1}
