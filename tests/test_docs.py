"""The documentation is true: its code runs, its links lead somewhere, its numbers are of rows."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest
import yaml

import dgbench

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


class Block(NamedTuple):
    """A fenced block: its language, text, the file it is to be, and why it is not run, if so."""

    language: str
    text: str
    file: str
    skip: str


def blocks(page: Path) -> list[Block]:
    found, lines, before = [], None, ""
    for line in page.read_text().splitlines():
        fence = _FENCE.match(line)
        if lines is None and fence:
            language, lines = fence[1], []
        elif lines is not None and line.startswith("```"):
            file, skip = _FILE.search(before), _SKIP.search(before)
            text = "\n".join(lines) + "\n"
            found.append(Block(language, text, file[1] if file else "", skip[1] if skip else ""))
            lines, before = None, ""
        elif lines is not None:
            lines.append(line)
        elif line.strip():
            before = line
    assert lines is None, f"{page}: a block is not closed"
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


def test_performance_page_is_what_the_kept_rows_say() -> None:
    hook = load("performance")
    assert (ROOT / "docs/performance.md").read_text() == hook.page(), f"run: {hook.COMMAND}"


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


def install(folder: Path) -> None:
    """Leave beside a package what `pip install -e` leaves: its entry points."""
    tomllib = pytest.importorskip("tomllib")
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    name, version = project["name"], project["version"]
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = []
    for group, points in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{key} = {value}" for key, value in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines))


def test_python_of_pages(tmp_path: Path, warm_python: list[str]) -> None:
    """The blocks of a page are one program; the example of a plugin is installed."""
    example = tmp_path / "example"
    shutil.copytree(ROOT / "tests/plugin", example, ignore=shutil.ignore_patterns("__pycache__"))
    install(example)
    scripts = []
    for page in PAGES:
        found = [b for b in blocks(page) if b.language == "python" and not b.skip]
        if found and page.name != "tutorial.md":  # which makes a package of its own
            scripts.append(f"{page.relative_to(DOCS).as_posix().replace('/', '-')}.py")
            (tmp_path / scripts[-1]).write_text("\n".join(block.text for block in found))
            for block in blocks(page):
                if block.file and block.language == "yaml":  # a ledger that its code reads
                    (tmp_path / block.file).write_text(block.text)
    assert len(scripts) >= 3
    env = {k: v for k, v in os.environ.items() if not k.startswith("DGBENCH_")} | {
        "PYTHONPATH": os.pathsep.join([str(example), os.environ.get("PYTHONPATH", "")]),
        "DGBENCH_CACHE": str(tmp_path / "cache"), "DGBENCH_RESULTS": str(tmp_path / "runs"),
        "XDG_DATA_HOME": str(tmp_path / "share"), "OMP_NUM_THREADS": "1", "NO_COLOR": "1",
        "COLUMNS": "100",
    }  # fmt: skip
    done = subprocess.run(
        [*warm_python, "-c", RUN_ALL, *scripts], cwd=tmp_path, env=env, capture_output=True,
        text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    shown = [b.text for b in blocks(DOCS / "adding-a-paper.md") if b.language == "text"]
    assert shown
    assert all(text in done.stdout for text in shown)
