"""Nothing that was downloaded is run: no pickle, no code from data, no unpacking without a filter.

Every rule has its exceptions here, each with its reason; one that nobody needs any more fails too.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dgbench import datasets
from dgbench.kernels_cuda.temporal_store import TemporalStore
from dgbench.runtime.errors import DgbenchError
from dgbench.systems.gnnflow.cache import read_state

ROOT = Path(__file__).parents[1]
FLOORS = ["src", "kernels_cuda", "datasets", "runtime", "models", "systems", "harness"]
FOLDERS = [*FLOORS, "scripts", "benchmarks", "docs/hooks"]

ALLOWED: dict[tuple[str, str], str] = {
    ("pickle", "runtime/ranks"): "between a launcher and its own ranks, in a folder only they read",
    ("pickle", "harness/report/parallel.py"): "the error of a pool whose work does not travel",
    ("torch.load", "systems/esdg/ranked.py"): "a sequence on its way to ranks, in a private folder",
    ("web", "datasets/sources/transfer.py"): "the one place that downloads; hashes are checked",
    ("unpacking", "scripts/build_peers.py"): "sources that the package index vouched for by hash",
    ("import", "kernels_cuda/build_info.py"): "_cpu or _cuda",
    ("import", "runtime/ranks/launcher.py"): "modules that the caller names in code",
    ("import", "runtime/ranks/hosts.py"): "a constant's modules",
    ("import", "runtime/ranks/__main__.py"): "the function that a person types",
    ("import", "systems/gnnflow/contenders/released.py"): "a class attribute",
    ("import", "systems/pygt/released.py"): "parts of an installed package, by their files",
    ("import", "systems/base/foreign_server.py"): "the module that a plugin's author declares",
    ("import", "harness/runner/server.py"): "from the runner that started it, over their own pipe",
    ("import", "harness/report/build.py"): "one of a constant's modules",
    ("import", "harness/figures/draw.py"): "a kind that is looked up in KINDS first",
    ("import", "harness/doctor.py"): "a constant's modules",
    ("import", "harness/cli/__init__.py"): "a constant's modules",
    ("library", "runtime/cuda_driver.py"): "the driver, by the loader's name",
    ("library", "systems/operators/ceilings/kernels.py"): "compiled from the source beside it",
}
# Names of modules that are imported, and forms of calls, by rule; what a file must hold for one.
MODULES = {
    "pickle": "pickle cPickle dill cloudpickle marshal shelve joblib",
    "web": "requests urllib urllib3 http httpx aiohttp ftplib pooch",
}
CALLS = {
    "pickle": r".*\.(read_pickle|to_pickle|read_hdf)\(|.*allow_pickle=(?!False)",
    "torch.load": r"torch\.load\((?!.*weights_only=True)",
    "code": r"(builtins\.)?(eval|exec|compile|__import__)\(",
    "yaml": r"yaml\.(full|unsafe)_load|yaml\.load(_all)?\((?!.*Loader=(_SAFE|_Once)\b)",
    "shell": r"os\.(system|popen)\(|.*\bshell=(?!False)",
    "unpacking": r".*(extractall|unpack_archive|\.extract|tempfile\.mktemp)\(",
    "import": r".*import_module\((?!')|.*\bexec_module\(",
    "library": r".*\b(CDLL|load_library|LoadLibrary)\((?!'|None)",
    "web": r".*(verify=False|trust_remote_code=(?!False))",
}

WORDS = re.compile(
    rf"(import|from)\b[^\n]*\b({'|'.join(MODULES.values()).replace(' ', '|')})\b"
    r"|(?<![\w.])(builtins\.)?(eval|exec|compile|__import__)\("
    r"|(read_pickle|to_pickle|read_hdf|extractall|unpack_archive|\.extract|mktemp|import_module"
    r"|exec_module|CDLL|load_library|LoadLibrary)\(|(torch|yaml)\.\w*load|os\.(system|popen)"
    r"|\b(allow_pickle|shell|verify|trust_remote_code)="
)


def fault(node: ast.AST) -> str:
    """The rule that an import or a call breaks, or ""."""
    modules: set[str] = set()
    if isinstance(node, ast.Import):
        modules = {alias.name.split(".")[0] for alias in node.names}
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        modules = {node.module.split(".")[0]}
    elif isinstance(node, ast.Call):
        function = ast.unparse(node.func)
        first = ast.unparse(node.args[0]) if node.args else ""
        named = ", ".join(f"{one.arg}={ast.unparse(one.value)}" for one in node.keywords)
        text = f"{function}({first}, {named})".replace("\n", " ")
        return next((rule for rule, form in CALLS.items() if re.match(form, text)), "")
    return next((rule for rule, names in MODULES.items() if modules & set(names.split())), "")


def test_no_source_breaks_a_rule_and_no_exception_is_left_over() -> None:
    wrong, used = [], set()
    for path in (file for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*.py"))):
        name = path.relative_to(ROOT).as_posix()
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if WORDS.search(text) else ():
            if rule := fault(node):
                key = next((k for k in ALLOWED if k[0] == rule and name.startswith(k[1])), None)
                used.add(key)
                if key is None:
                    wrong.append(f"{name}:{node.lineno}: {rule}: {ast.unparse(node)[:80]}")
    assert not wrong, "\n".join(wrong)
    assert used == set(ALLOWED)


LINES = """pickle from joblib import load
web import urllib.request
torch.load torch.load(f, weights_only=False)
pickle np.load(f, allow_pickle=flag)
code eval(text)
yaml yaml.load(f, Loader=yaml.Loader)
shell subprocess.run(c, shell=True)
unpacking tar.extractall(d)
import importlib.import_module(name)
library ctypes.CDLL(path)
- torch.load(f, weights_only=True), np.load(f), model.eval(), yaml.safe_load(f), re.compile(x)
- importlib.import_module('torch'), yaml.load(f, Loader=_SAFE)"""


@pytest.mark.parametrize("line", LINES.splitlines())
def test_the_rules_bite(line) -> None:
    rule, _, source = line.partition(" ")
    assert next(filter(None, map(fault, ast.walk(ast.parse(source)))), "-") == rule
    assert rule == "-" or WORDS.search(source)


class Bomb:
    """Object with a side effect when it is unpickled."""

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return Path.touch, (Path("unpickled"),)  # type: ignore[return-value]


@pytest.mark.parametrize("read", [TemporalStore.load, read_state])
def test_files_with_pickles_in_them_are_refused(read, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = ["header", "vertices", "counts", "sizes", "capacity", "records", "ids", "rows", "last",
             "score", "order"]  # fmt: skip
    with (tmp_path / "file").open("wb") as out:
        np.savez(out, **dict.fromkeys(names, np.array([Bomb()], dtype=object)))
    with pytest.raises(DgbenchError):
        read(tmp_path / "file")
    assert not (tmp_path / "unpickled").exists()


def test_every_file_of_the_catalogue_has_a_hash_or_says_why_not() -> None:
    for card in datasets.cards().values():
        for ref in (*card.beside, *(r for form in card.forms for r in form.files)):
            assert ref.hashed != bool(ref.unhashed), f"{card.name}: {ref.path}"
            hashes = (ref.sha256, ref.content_sha256, ref.bundled and ref.bundled.sha256)
            assert all(h is None or re.fullmatch(r"[0-9a-f]{64}", h) for h in hashes), ref.path
            assert not Path(ref.path).is_absolute()
            assert ".." not in Path(ref.path).parts
