"""Nothing that was downloaded is run: no pickle, no code from data, no unpacking without a filter.

Every rule has its exceptions here, each with its reason; one that nobody needs any more fails too.
"""

from __future__ import annotations

import ast
import gc
import random
import re
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from dgbench import datasets
from dgbench.kernels_cuda.temporal_store import TemporalStore
from dgbench.runtime.errors import DgbenchError
from dgbench.runtime.ranks import launch
from dgbench.systems.gnnflow.cache import read_state

ROOT = Path(__file__).parents[1]
FLOORS = ["src", "kernels_cuda", "datasets", "runtime", "models", "systems", "harness"]
FOLDERS = [*FLOORS, "scripts", "benchmarks", "docs/hooks"]

pytestmark = pytest.mark.skipif(not (ROOT / "datasets").is_dir(), reason="no checkout")

PICKLES = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "joblib"}
WEB = {"requests", "urllib", "urllib3", "http", "httpx", "aiohttp", "ftplib", "pooch"}
SAFE_LOADERS = {"_SAFE", "_Once"}

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


Nodes = list[tuple[str, ast.Call | ast.Import | ast.ImportFrom | ast.Assign]]


@pytest.fixture(scope="module")
def sources() -> Nodes:
    """Every import, call and assignment, with its file's path."""
    kinds = (ast.Call, ast.Import, ast.ImportFrom, ast.Assign)
    found: Nodes = []
    gc.disable()  # millions of nodes, and none of them in a circle: looking for some takes as long
    try:
        for folder in FOLDERS:
            for path in sorted((ROOT / folder).rglob("*.py")):
                tree = ast.parse(path.read_text(encoding="utf-8"))
                name = path.relative_to(ROOT).as_posix()
                found += [(name, node) for node in ast.walk(tree) if isinstance(node, kinds)]
    finally:
        gc.freeze()
        gc.enable()
    return found


def called(node: ast.AST) -> str:
    """`np.load` of a call `np.load(...)`, "" where it is no such call."""
    if not isinstance(node, ast.Call):
        return ""
    if isinstance(node.func, ast.Attribute):
        owner = node.func.value
        return f"{owner.id if isinstance(owner, ast.Name) else '?'}.{node.func.attr}"
    return node.func.id if isinstance(node.func, ast.Name) else ""


def keyword(node: ast.Call, name: str) -> object:
    """A keyword's constant; its text where it is none, None where it is not given."""
    for one in node.keywords:
        if one.arg == name:
            return (
                one.value.value if isinstance(one.value, ast.Constant) else ast.unparse(one.value)
            )
    return None


def imported(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name.split(".")[0] for alias in node.names}
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        return {node.module.split(".")[0]}
    return set()


def fault(node: ast.AST) -> str:
    """The rule that a node breaks, or ""."""
    modules = imported(node)
    if modules & PICKLES:
        return "pickle"
    if modules & WEB:
        return "web"
    call = called(node)
    if not call:
        return ""
    last = call.rpartition(".")[2]
    first = node.args[0] if node.args else None
    if last in ("read_pickle", "to_pickle", "read_hdf"):
        return "pickle"
    if call == "torch.load" and keyword(node, "weights_only") is not True:
        return "torch.load"
    if keyword(node, "allow_pickle") not in (None, False):
        return "pickle"
    if last in ("eval", "exec", "compile", "__import__") and call in (last, f"builtins.{last}"):
        return "code"
    if call in ("yaml.full_load", "yaml.unsafe_load", "yaml.full_load_all", "yaml.unsafe_load_all"):
        return "yaml"
    if call in ("yaml.load", "yaml.load_all") and keyword(node, "Loader") not in SAFE_LOADERS:
        return "yaml"
    if keyword(node, "shell") not in (None, False) or call in ("os.system", "os.popen"):
        return "shell"
    if last in ("extractall", "unpack_archive") or call.endswith((".extract", "tempfile.mktemp")):
        return "unpacking"
    if last == "import_module" and not isinstance(first, ast.Constant):
        return "import"
    if last == "exec_module":
        return "import"
    if last in ("CDLL", "load_library", "LoadLibrary") and not isinstance(first, ast.Constant):
        return "library"
    if keyword(node, "verify") is False or keyword(node, "trust_remote_code") not in (None, False):
        return "web"
    return ""


def test_no_source_breaks_a_rule_and_no_exception_is_left_over(sources: Nodes) -> None:
    wrong, used = [], set()
    for name, node in sources:
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        if isinstance(target, ast.Name) and target.id in SAFE_LOADERS:
            value = ast.unparse(node.value)
            assert "yaml" not in value or "SafeLoader" in value, f"{name}: {value}"
        rule = fault(node)
        if not rule:
            continue
        key = next((k for k in ALLOWED if k[0] == rule and name.startswith(k[1])), None)
        used.add(key)
        if key is None:
            wrong.append(f"{name}:{node.lineno}: {rule}: {ast.unparse(node)[:80]}")
    assert not wrong, "\n".join(wrong)
    assert used == set(ALLOWED)


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("from joblib import load", "pickle"),
        ("import urllib.request", "web"),
        ("torch.load(f, weights_only=False)", "torch.load"),
        ("torch.load(f, weights_only=True)", ""),
        ("np.load(f, allow_pickle=flag)", "pickle"),
        ("np.load(f)", ""),
        ("eval(text)", "code"),
        ("model.eval()", ""),
        ("yaml.load(f, Loader=yaml.Loader)", "yaml"),
        ("yaml.safe_load(f)", ""),
        ("subprocess.run(c, shell=True)", "shell"),
        ("tar.extractall(d)", "unpacking"),
        ("importlib.import_module(name)", "import"),
        ("importlib.import_module('torch')", ""),
        ("ctypes.CDLL(path)", "library"),
    ],
)
def test_the_rules_bite(line, rule) -> None:
    assert next(filter(None, map(fault, ast.walk(ast.parse(line)))), "") == rule


class Bomb:
    """Object with a side effect when it is unpickled."""

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return Path.touch, (Path("unpickled"),)  # type: ignore[return-value]


@pytest.mark.parametrize("read", [TemporalStore.load, read_state])
def test_files_with_pickles_in_them_are_refused(read, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = ["header", "vertices", "counts", "sizes", "capacity", "records",
             "ids", "rows", "last", "score", "order"]  # fmt: skip
    with (tmp_path / "file").open("wb") as out:
        np.savez(out, **dict.fromkeys(names, np.array([Bomb()], dtype=object)))
    with pytest.raises(DgbenchError):
        read(tmp_path / "file")
    assert not (tmp_path / "unpickled").exists()


@pytest.mark.parametrize("read", [TemporalStore.load, read_state])
def test_bits_that_flip_in_files_of_ours_never_crash_a_reader(read, tmp_path) -> None:
    """They may ask for a password, another version of zip, or break the unpacker in the middle."""
    file = tmp_path / "file"
    store = TemporalStore(6)
    store.insert(torch.tensor([1, 2, 3]), torch.tensor([2, 3, 4]), torch.arange(3).double())
    store.save(file)
    if read is read_state:
        numbers = np.arange(40)
        with file.open("wb") as out:
            np.savez_compressed(out, ids=numbers, last=numbers, score=numbers, order=numbers[:2],
                                rows=np.ones((40, 3), np.float32))  # fmt: skip
    right = file.read_bytes()
    read(file)
    draw, refused = random.Random(1), 0
    for _ in range(300):
        altered = bytearray(right)
        altered[draw.randrange(len(right))] ^= 1 << draw.randrange(8)
        file.write_bytes(altered)
        try:
            read(file)
        except DgbenchError:
            refused += 1
    assert refused > 75


def own_folder(comm: object, temporary: str) -> list[int]:
    """Modes of the folders that ranks exchange results in."""
    return [stat.S_IMODE(p.stat().st_mode) for p in Path(temporary).glob("dgbench-ranks-*/")]


def test_what_ranks_exchange_is_for_their_user_alone(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert launch(own_folder, 1, [str(tmp_path)], timeout_s=240) == [[0o700]]


def test_every_file_of_the_catalogue_has_a_hash_or_says_why_not() -> None:
    for card in datasets.cards().values():
        files = [r for form in card.forms for r in form.files]
        for ref in [*files, *card.beside]:
            copy = ref.bundled and ref.bundled.sha256
            hashes = [h for h in (ref.sha256, ref.content_sha256, copy) if h is not None]
            assert all(re.fullmatch(r"[0-9a-f]{64}", h) for h in hashes), ref.path
            assert ref.git_blob is None or re.fullmatch(r"[0-9a-f]{40}", ref.git_blob), ref.path
            assert ref.hashed != bool(ref.unhashed), f"{card.name}: {ref.path}"
            assert not Path(ref.path).is_absolute()
            assert ".." not in Path(ref.path).parts
        for url in [a.url for a in card.addresses] + [r.url for r in files if r.url]:
            assert re.match(r"https?://[\w.-]+/", url), url


# Import names that differ from the name of their distribution.
NAMES = {"yaml": "pyyaml", "pynvml": "nvidia-ml-py", "torch_geometric": "torch-geometric"}
OPTIONAL = {"torch_geometric_temporal", "torch_sparse", "torch_scatter", "dgl", "tglite",
            "pymetis", "kahypar", "cupy", "pylibwholegraph", "submitit"}  # fmt: skip


def test_what_is_imported_is_declared(sources: Nodes) -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    block = project.split("\ndependencies = [")[1].split("\n]")[0]
    declared = set(re.findall(r'"([\w-]+)[>=<]', block))
    found = {m for name, node in sources if name.split("/")[0] in FLOORS for m in imported(node)}
    third = found - set(sys.stdlib_module_names) - OPTIONAL - {"dgbench"}
    assert {NAMES.get(name, name) for name in third} <= declared
