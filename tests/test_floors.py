"""Imports point down, systems do not import each other, and importing dgbench does no work."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
FLOORS = ["kernels_cuda", "datasets", "runtime", "models", "lab", "systems", "harness"]
BELOW = {
    "kernels_cuda": {"runtime"},
    "datasets": {"kernels_cuda", "runtime"},
    "runtime": {"kernels_cuda"},
    "models": {"kernels_cuda", "datasets", "runtime"},
    "lab": {"runtime"},
    "systems": {"kernels_cuda", "datasets", "runtime", "models", "lab"},
    "harness": {"kernels_cuda", "datasets", "runtime", "models", "lab", "systems"},
}


STATEMENT = re.compile(r"^[ \t]*((?:from|import) dgbench[^\n(]*(?:\([^)]*\))?)", re.MULTILINE)


@cache
def imports(path: Path) -> set[str]:
    """Modules, and names in modules, that a file imports anywhere."""
    found = set()
    for statement in STATEMENT.findall(path.read_text()):
        (node,) = ast.parse(statement).body
        within = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
        found |= {f"{within}{alias.name}" for alias in node.names}
    return {name for name in found if name.startswith("dgbench.")}


def test_imports_point_down() -> None:
    wrong = []
    for floor in FLOORS:
        for path in (ROOT / floor).rglob("*.py"):
            for name in imports(path):
                target = name.split(".")[1]
                if target not in FLOORS or target == floor or target in BELOW[floor]:
                    continue
                wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    assert not wrong, "\n".join(wrong)


def test_a_system_imports_no_other_system_and_no_harness() -> None:
    wrong = []
    for path in (ROOT / "systems").rglob("*.py"):
        mine = path.relative_to(ROOT / "systems").parts[0]
        for name in imports(path):
            parts = name.split(".")
            if parts[1] == "systems" and len(parts) > 2 and parts[2] not in (mine, "base"):
                wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    assert not wrong, "\n".join(wrong)


def test_import_does_no_work() -> None:
    """`import dgbench` and the command line's help load no torch, no drawing, no threads."""
    code = (
        "import sys, threading, dgbench, dgbench.harness.cli\n"
        "heavy = {'torch', 'matplotlib', 'pandas', 'seaborn', 'torch_geometric', 'pynvml'}\n"
        "print(sorted(heavy & set(sys.modules)), threading.active_count())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[]", "1"]
