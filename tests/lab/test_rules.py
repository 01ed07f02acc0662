"""Rules of the table of observations that no single function can hold to.

An exception stands here with its reason; a new one is a change of this list.
"""

from __future__ import annotations

import ast
import gc
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CODE = ("lab", "systems", "harness")
FLOORS = (*CODE, "runtime", "models", "datasets", "kernels_cuda")

PATTERNS = {
    "harness/bundle/scrub.py": "private words of texts",
    "harness/doctor.py": "what programs print of their versions",
    "harness/figures/svg.py": "the text of an SVG file",
    "harness/machine/known.py": "what the system prints of its processors",
    "harness/plan/plan.py": "whether a reason names a GPU",
    "harness/report/pictures.py": "the size of an SVG file",
    "harness/report/run.py": "file names",
    "harness/report/words.py": "marks of Markdown and HTML in texts of others",
    "harness/report/systems.py": "annotations of methods",
    "harness/runner/child.py": "what exceptions of libraries say",
    "harness/runner/readable.py": "control characters",
    "harness/states.py": "ids of runs",
    "harness/terminal/text.py": "control characters",
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
    "harness/figures/palette.py": "parts of a system as their papers print them: PGC, DGC w/o SG",
    "harness/figures/svg.py": "the text of an SVG file",
    "harness/figures/words.py": "lines that are broken, decimals of a number",
    "harness/report/run.py": "names of processors",
    "harness/report/words.py": "decimals of a number",
    "harness/states.py": "what people type",
    "harness/store/old_names/__init__.py": "names from before schema 3",
    "harness/store/old_names/texts.py": "params and notes that hold several things",
    "lab/arena.py": "the graph that the title of a race begins with",
    "lab/charts.py": "columns `failed` and `series` of a figure's CSV, written and read here",
    "lab/metrics.py": "what a name may be",
    "lab/printed.py": "ids of claims, decimals of a printed number",
}
"""Modules of lab, and of what is told by the harness, that take a text apart."""
TEXT_FIELDS = {
    "about", "caption", "hint", "label", "note", "notes", "question", "reading", "reason",
    "statement", "title",
}  # fmt: skip
"""Fields that hold words for people."""
DECIDED = {
    "harness/runner/outcome.py": "what exceptions of libraries say",
}
"""Modules that decide something by words for people."""
PRINTS = {
    "harness/runner/child.py": "the log of a cell's process",
    "runtime/ranks/__main__.py": "results of a command for other programs, one line a rank",
}
"""Modules beside the terminal's, the commands' and `__main__` that print."""
CLOCKS = ("perf_counter", "perf_counter_ns", "process_time", "elapsed_time", "timeit")
MEASURING = {
    "benchmarks/asv/overhead.py": "the harness itself: what watching a process costs",
}
"""Modules outside the experiments that read a clock to measure; deadlines are none."""
BY_HAND = {
    "kernels_cuda/aggregate/cuda_launch.cuh": "lanes of a row, fewer than a warp",
    "kernels_cuda/aggregate/cuda_tiles.cu": "groups of lanes, by rows; the emulator has no CUB",
    "kernels_cuda/attention/cuda_packed.cu": "lanes of a head; the emulator has no CUB",
    "kernels_cuda/attention/cuda_rows.cu": "lanes of a row, fewer than a warp",
    "kernels_cuda/common/block_scan.cuh": "scan of a block inside kernels; the emulator has no CUB",
    "kernels_cuda/edge_sampling/cuda.cu": "lanes of a row, fewer than a warp",
    "kernels_cuda/interact/cuda.cu": "lanes of a row, fewer than a warp",
    "kernels_cuda/ranking/cuda.cu": "two counts of a row, by one block each",
    "kernels_cuda/weighted/cuda_select.cu": "counts of a warp inside one pass of a selection",
}
"""Kernels that scan or reduce over lanes themselves."""
Modules = list[tuple[str, list[ast.AST]]]
"""Names, and all nodes of their trees."""
EXPERIMENT_CLASSES = "/experiments/"
"""Where classes are named by a figure or a table, and are unique in their paper only."""
TOLD = ("claims", "figures", "plugins", "report", "store", "terminal")


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


def imported(nodes: list[ast.AST]) -> set[str]:
    names: set[str] = set()
    for node in nodes:
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
    found = {name for name, nodes in modules if imported(nodes) & wanted}
    assert not found - set(allowed)
    assert not set(allowed) - found, "these do it no more: take them off the list"


def test_only_named_modules_take_texts_apart(modules: Modules) -> None:
    """Texts are made of fields: nothing is split off a title, a note or a name."""
    found = set()
    for name, nodes in modules:
        place = name.split("/")
        if place[0] == "systems" or (
            len(place) > 2 and place[0] == "harness" and place[1] not in TOLD
        ):
            continue
        for node in nodes:
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


def test_all_measuring_is_an_experiment() -> None:
    """Scripts and benchmarks read no clock to measure; what they run are cells of experiments."""
    measuring = {
        name
        for name, nodes in python_files("scripts", "benchmarks")
        if any(getattr(n, "attr", getattr(n, "id", "")) in CLOCKS for n in nodes)
    }
    assert not measuring - set(MEASURING)
    there = {name for name in MEASURING if (ROOT / name).exists()}
    assert not there - measuring, "these do it no more: take them off the list"


def test_scans_and_reductions_are_those_of_libraries() -> None:
    """Scan, sort, reduce and select are torch's, SciPy's or CUB's where these do the job."""
    lanes = re.compile(r"\b__shfl_(?:up|down|xor)_sync\b|\b__reduce_\w+_sync\b")
    found = {
        path.relative_to(ROOT).as_posix()
        for path in sorted((ROOT / "kernels_cuda").rglob("*.cu*"))
        if path.suffix in (".cu", ".cuh") and lanes.search(path.read_text())
    }
    assert not found - set(BY_HAND)
    assert not set(BY_HAND) - found, "these do it no more: take them off the list"


def test_no_number_of_a_row_is_asked_for_by_a_name(modules: Modules) -> None:
    """Old fields of rows are read where old rows are, and nowhere else."""
    old = {"values", "units", "counters", "phases", "samples"}
    found = [
        f"{name}:{node.lineno}"
        for name, nodes in modules
        if name != "harness/store/row.py"
        for node in nodes
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
    for name, nodes in modules:
        for node in nodes:
            if isinstance(node, ast.Call) and node.args:
                called = getattr(node.func, "attr", getattr(node.func, "id", ""))
                if called in asked and any(isinstance(a, ast.JoinedStr) for a in node.args[:2]):
                    found.append(f"{name}:{node.lineno}")
    assert not found


def test_a_class_has_a_name_of_its_own(floors: Modules) -> None:
    """A name stands for one thing in all code; an experiment's is unique in its paper."""
    places: dict[str, list[str]] = {}
    for place, nodes in [*floors, *python_files("benchmarks", "scripts")]:
        owner = place.split("/")[1] + " " if EXPERIMENT_CLASSES in place else ""
        for node in nodes:
            if isinstance(node, ast.ClassDef):
                places.setdefault(owner + node.name, []).append(f"{place}:{node.lineno}")
    assert not {name: found for name, found in places.items() if len(found) > 1}
