"""The documentation is true: its code runs, its links lead somewhere, its numbers are of rows."""

from __future__ import annotations

import gzip
import importlib.util
import json
import math
import os
import re
import shlex
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
import yaml

import dgbench
from dgbench.harness.store import Store

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(p for p in DOCS.rglob("*.md"))
_FENCE = re.compile(r"^```(\w*)\s*$")
_FILE = re.compile(r"`([\w./-]+\.\w+)`:\s*$")
_SKIP = re.compile(r"<!-- not run: (.+) -->\s*$")


def load(name: str) -> ModuleType:
    """A file of docs/hooks, which is no package."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / "hooks" / f"{name}.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # for dataclasses
    spec.loader.exec_module(module)
    return module


site = load("site")


@dataclass
class Block:
    """A fenced block: its language, text, the file it is to be, and why it is not run, if so."""

    language: str
    text: str
    file: str
    skip: str
    line: int


def blocks(page: Path) -> list[Block]:
    found, inside, before, held = [], None, "", []
    for number, line in enumerate(page.read_text().splitlines(), 1):
        fence = _FENCE.match(line)
        if inside is None and fence:
            file, skip = _FILE.search(before), _SKIP.search(before)
            inside = Block(fence[1], "", file[1] if file else "", skip[1] if skip else "", number)
            held = []
        elif inside is not None and line.startswith("```"):
            inside.text = "\n".join(held) + "\n"
            found.append(inside)
            inside, before = None, ""
        elif inside is not None:
            held.append(line)
        elif line.strip():
            before = line
    assert inside is None, f"{page}: a block is not closed"
    return found


# --- docstrings -----------------------------------------------------------------------------

CODE = ("benchmarks", "datasets", "docs/hooks", "harness", "kernels_cuda", "lab", "models",
        "runtime", "scripts", "src", "systems", "tests")  # fmt: skip
_QUESTION = re.compile(r'\s*r?"""\s*(What|Whether|How|Which|That)\b')


def test_docstrings_begin_with_a_noun_or_a_verb() -> None:
    """PyTorch's form: "Number of edges", "Return True if", not "How many" or "Whether"."""
    files = [ROOT / "noxfile.py", *(p for folder in CODE for p in (ROOT / folder).rglob("*.py"))]
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sorted(files)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if _QUESTION.match(line)
    ]
    assert not found, "begin with what it is, or with a verb: " + ", ".join(found)


# --- links and navigation -------------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, as MkDocs and code hosts make them."""
    found = set()
    for _, line in site._plain_lines(page.read_text()):
        if line.startswith("#"):
            words = re.sub(r"[^\w\s-]", "", line.lstrip("#").strip().lower())
            found.add(re.sub(r"\s+", "-", words))
    return found


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md", ROOT / "CHANGELOG.md"],
                         ids=lambda p: str(p.relative_to(ROOT)))  # fmt: skip
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    for line, target in site.links(page.read_text()):
        path, _, anchor = target.partition("#")
        there = page.parent / path
        assert there.exists(), f"{page.name}:{line} links to {target}"
        if anchor and there.suffix == ".md":
            assert anchor in anchors(there), f"{page.name}:{line}: no heading for {target}"
        if page.is_relative_to(DOCS) and not there.resolve().is_relative_to(DOCS):
            # The site gets copies of files; a folder would have nothing to show.
            assert there.is_file(), f"{page.name}:{line} links to the folder {target}"


def nav_pages(entry: object) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    children = entry.values() if isinstance(entry, dict) else entry
    return [page for child in children for page in nav_pages(child)]


def test_navigation_names_every_page_once() -> None:
    named = nav_pages(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    pages = [p.relative_to(DOCS).as_posix() for p in PAGES] + sorted(site.PAGES.values())
    assert sorted(named) == sorted(pages)


def test_reference_pages_name_what_exists() -> None:
    for page in (DOCS / "api").glob("*.md"):
        for name in re.findall(r"^::: (\S+)", page.read_text(), re.MULTILINE):
            module, _, last = name.rpartition(".")
            try:
                found = hasattr(importlib.import_module(module), last)
            except ImportError:
                found = False
            assert found or importlib.util.find_spec(name), f"{page.name}: {name}"


def test_command_line_page_says_what_the_commands_say() -> None:
    found = (DOCS / "command-line.md").read_text()
    assert found == load("command_line").page(), "run: python docs/hooks/command_line.py"


# --- the page of performance, and what files say of the project ----------------------------

KEPT = sorted(p.parent for p in (ROOT / "results/reference").glob("*/operators/run.json"))


def test_performance_page_is_what_the_kept_rows_say() -> None:
    hook = load("performance")
    assert (ROOT / "docs/performance.md").read_text() == hook.page(), f"run: {hook.COMMAND}"


@pytest.mark.parametrize("folder", KEPT, ids=lambda p: p.parent.name)
def test_ratio_of_performance_page_is_the_lowest_mean_over_peers(folder: Path) -> None:
    """Of races: the geometric mean over processes of what each observed, by hand."""
    hook, seen = load("performance"), defaultdict(list)
    with gzip.open(folder / "rows.jsonl.gz") as file:
        rows = [json.loads(line)["row"] for line in file]
    for row in rows:
        good = row["status"] == "ok" and "control" not in row["params"]
        for one in row.get("observed", ()) if good else ():
            dims = one.get("dims", {})
            if one["metric"] == "speedup" and dims.get("method") == "dgbench":
                key = row["experiment"], tuple(row["params"].items()), dims["baseline"]
                seen[key].append(math.log(one["value"]))
    means = {key: math.exp(sum(logs) / len(logs)) for key, logs in seen.items()}
    raced = [s for s in hook.standings(Store.open(folder).rows()) if s.operator in hook.BOUNDS]
    assert bool(raced) == bool(means)
    limits = {"copy of as many bytes", "torch index_select", "lookup of nothing and gather"}
    peers = {
        key: mean
        for key, mean in means.items()
        if key[2] not in limits and not key[2].startswith("dgbench")
    }
    lowest = defaultdict(lambda: math.inf)
    for (experiment, params, _), mean in peers.items():
        lowest[experiment, params] = min(lowest[experiment, params], mean)
    wanted = sorted((experiment, round(mean, 9)) for (experiment, _), mean in lowest.items())
    assert sorted((s.operator, round(s.ratio.value, 9)) for s in raced) == wanted


def test_files_say_the_same_of_the_project() -> None:
    tomllib = pytest.importorskip("tomllib")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    meta = json.loads((ROOT / "codemeta.json").read_text())
    version, python = (project["project"][key] for key in ("version", "requires-python"))
    assert {dgbench.__version__, citation["version"], meta["version"]} == {version}
    assert meta["license"].rsplit("/", 1)[1] == citation["license"] == "Apache-2.0"
    assert [a["name"] for a in citation["authors"]] == [a["name"] for a in meta["author"]]
    assert meta["softwareRequirements"] == f"Python {python.replace('>=', '>= ')}"
    wheels = project["tool"]["cibuildwheel"]
    assert wheels["build"][0].startswith(f"cp{python.removeprefix('>=').replace('.', '')}-")
    files = ("CMakeLists.txt", "cuda.cmake")
    cmake = "".join((ROOT / "kernels_cuda" / name).read_text() for name in files)
    options = [n for n in wheels["config-settings"] if n.startswith("cmake.define.")]
    assert "cmake.define.DGBENCH_PORTABLE" in options
    for option in options:
        name = option.removeprefix("cmake.define.")
        assert re.search(rf"\b(option|set)\({name}\b", cmake), option


@pytest.mark.parametrize("path", sorted((ROOT / ".github/workflows").glob("*.yml")), ids=str)
def test_workflows_name_scripts_and_sessions_that_exist(path: Path) -> None:
    steps = [s for job in yaml.safe_load(path.read_text())["jobs"].values() for s in job["steps"]]
    said = "\n".join(str(step.get("run", "")) for step in steps)
    for script in re.findall(r"(?:scripts|\.ci)/[\w./-]+", said):
        assert (ROOT / script).is_file(), script
    sessions = (ROOT / "noxfile.py").read_text()
    for session in re.findall(r"nox -s (\w+)", said):
        assert f"\ndef {session}(session" in sessions
    commands = (ROOT / "docs/command-line.md").read_text()
    for command in re.findall(r"\bdgbench (\w+)", said):
        assert f"dgbench {command}" in commands


# --- code blocks ----------------------------------------------------------------------------

PROLOGUE = """
set -eu
dgbench() {
  # A test shows that everything runs; the preset that measures is for people.
  case "$1" in run | reproduce) set -- "$@" --preset smoke ;; esac
  warm -m dgbench "$@"
}
python() {
  case "$*" in
    "-m pip install -e "*) "$PYTHON" "$INSTALL" "${@: -1}" ;;
    *) warm "$@" ;;
  esac
}
"""
INSTALL = '''
"""Leave beside the package what `pip install -e` leaves: its entry points. No network, no build."""
import pathlib, sys, tomllib
folder = pathlib.Path(sys.argv[1])
project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
name = project["name"].replace("-", "_")
info = folder / f"{name}-{project['version']}.dist-info"
info.mkdir(exist_ok=True)
meta = f"Metadata-Version: 2.1\\nName: {project['name']}\\nVersion: {project['version']}\\n"
(info / "METADATA").write_text(meta)
lines = []
for group, points in project["entry-points"].items():
    lines += [f"[{group}]", *(f"{k} = {v}" for k, v in points.items())]
(info / "entry_points.txt").write_text("\\n".join(lines) + "\\n")
'''


def one_core() -> None:
    """Threads of a test that shares its cores wait for each other."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


@pytest.fixture
def place(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """An empty folder and an environment without real data, whose packages are importable."""
    install = tmp_path / "install.py"
    install.write_text(INSTALL)
    example = tmp_path / "example"
    example.mkdir()
    for file in (ROOT / "tests/plugin").iterdir():
        if file.is_file():
            (example / file.name).write_bytes(file.read_bytes())
    subprocess.run([sys.executable, str(install), str(example)], check=True)
    env = {k: v for k, v in os.environ.items() if not k.startswith("DGBENCH_")}
    env |= {
        "PYTHON": sys.executable,
        "INSTALL": str(install),
        "PYTHONPATH": os.pathsep.join(
            [str(tmp_path / "memo-race"), str(example), env.get("PYTHONPATH", "")]
        ),
        "DGBENCH_CACHE": str(tmp_path / "cache"),
        "DGBENCH_RESULTS": str(tmp_path / "results/runs"),
        "XDG_DATA_HOME": str(tmp_path / "share"),
        "OMP_NUM_THREADS": "1",
        "NO_COLOR": "1",
        "COLUMNS": "100",
    }
    work = tmp_path
    return work, env


def execute(block: Block, python: list[str], work: Path, env: dict[str, str]) -> str:
    """Output of a block, whose `python` is started by these words."""
    warm = f'warm() {{ {shlex.join(python)} "$@"; }}\n'
    command = ["bash", "-c", warm + PROLOGUE + block.text]
    if block.language == "python":
        command = [*python, "-c", block.text]
    done = subprocess.run(
        command, cwd=work, env=env, capture_output=True, text=True, timeout=240,
        check=False, preexec_fn=one_core,
    )  # fmt: skip
    assert done.returncode == 0, f"line {block.line}:\n{block.text}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_tutorial(place: tuple[Path, dict[str, str]], warm_python: list[str]) -> None:
    work, env = place
    for block in blocks(DOCS / "tutorial.md"):
        assert not block.skip, "a newcomer runs every block"
        if block.file:
            path = work / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
        elif block.language != "text":
            execute(block, warm_python, work, env)
    figures = {p.stem for p in (work / "results").rglob("race*.svg")}
    assert {"race-full", "race-half"} <= figures
    assert list((work / "results").rglob("papers/memo.html"))


RUN_ALL = """
import pathlib, sys, traceback
failed = []
for path in sys.argv[1:]:
    try:
        exec(compile(pathlib.Path(path).read_text(), path, "exec"), {"__name__": "__main__"})
    except BaseException:
        failed.append(f"{path}:\\n{traceback.format_exc()}")
sys.exit("\\n".join(failed) or 0)
"""


def test_python_of_other_pages(place: tuple[Path, dict[str, str]], warm_python: list[str]) -> None:
    work, env = place
    scripts = []
    for page in PAGES:  # the blocks of a page are one program
        found = [b for b in blocks(page) if b.language == "python" and not b.skip]
        if found and page.name != "tutorial.md":
            name = f"{page.relative_to(DOCS).as_posix().replace('/', '-')}.py"
            (work / name).write_text("\n".join(block.text for block in found))
            scripts.append(name)
            for block in blocks(page):
                if block.file and block.language == "yaml":  # a ledger that its code reads
                    (work / block.file).write_text(block.text)
    assert len(scripts) >= 3
    done = subprocess.run(
        [*warm_python, "-c", RUN_ALL, *scripts], cwd=work, env=env, capture_output=True,
        text=True, timeout=240, check=False, preexec_fn=one_core,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    shown = [b.text for b in blocks(DOCS / "adding-a-paper.md") if b.language == "text"]
    assert shown
    assert all(text in done.stdout for text in shown)
