"""Getting at the released torch-geometric-temporal cells, and what they are found to do."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from dgbench.runtime.errors import MissingPackageError

PACKAGE = "torch-geometric-temporal"
INSTALL = "pip install --no-deps torch-geometric-temporal==0.56.2"
_FILES = {
    "temporalgcn": ("TGCN",),
    "mpnn_lstm": ("MPNNLSTM",),
    "evolvegcno": ("EvolveGCNO", "GCNConv_Fixed_W"),
}


@dataclass(frozen=True, slots=True)
class CellClasses:
    """The classes that the adapters build on.

    Attributes:
        tgcn, mpnn_lstm, fixed_w: `TGCN`, `MPNNLSTM`, `GCNConv_Fixed_W` or their stand-ins.
        origin: "released torch-geometric-temporal 0.56.2" or "re-implemented (PyG GCNConv)".
        released: whether they are the released ones.
    """

    tgcn: Any
    mpnn_lstm: Any
    fixed_w: Any
    origin: str
    released: bool


def version() -> str | None:
    """Installed version of torch-geometric-temporal, or None; imports nothing."""
    try:
        return importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return None


def origin() -> str:
    """Provenance of these systems' rows, without importing the package."""
    found = version()
    return f"released {PACKAGE} {found}" if found else "re-implemented (PyG GCNConv)"


@cache
def import_pygt() -> SimpleNamespace:
    """The released `TGCN`, `MPNNLSTM`, `EvolveGCNO` and `GCNConv_Fixed_W`, with `version`.

    The three files that define them are executed alone: the package's own `__init__` pulls in
    all its datasets and cells, any of which may fail to import. `torch_sparse`, which they need
    for the name of one type only and which has no binary release, is stood in for by
    torch-geometric's own placeholder while they are executed, if it is not installed.

    Raises:
        MissingPackageError: if the package is absent or these files do not run.
    """
    found = importlib.util.find_spec("torch_geometric_temporal")
    if found is None or not found.submodule_search_locations:
        raise MissingPackageError(f"the package {PACKAGE} is not installed", hint=INSTALL)
    folder = Path(next(iter(found.submodule_search_locations))) / "nn" / "recurrent"
    classes: dict[str, Any] = {"version": version()}
    stood_in = importlib.util.find_spec("torch_sparse") is None
    if stood_in:
        sys.modules["torch_sparse"] = _sparse_stand_in()
    try:
        for stem, names in _FILES.items():
            module = _execute(folder / f"{stem}.py")
            classes |= {name: getattr(module, name) for name in names}
    except Exception as error:
        raise MissingPackageError(
            f"{PACKAGE} {version()} is installed but does not import: "
            f"{type(error).__name__}: {error}",
            hint=INSTALL,
        ) from error
    finally:
        if stood_in:
            sys.modules.pop("torch_sparse", None)
    return SimpleNamespace(**classes)


def _sparse_stand_in() -> ModuleType:
    from torch_geometric.typing import SparseTensor

    module = ModuleType("torch_sparse")
    module.SparseTensor = SparseTensor
    return module


def _execute(path: Path) -> ModuleType:
    """Run a file as a module under a name of our own, so that the package itself stays loadable."""
    name = f"dgbench_released_pygt_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # message passing looks its class's module up there
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


@cache
def cell_classes() -> CellClasses:
    """The released cells, or the stand-ins built on PyG where the package does not load."""
    try:
        pygt = import_pygt()
    except MissingPackageError as error:
        from dgbench.systems.pygt import fallback

        return CellClasses(
            fallback.TGCN,
            fallback.MPNNLSTM,
            fallback.FixedWeightConv,
            f"re-implemented (PyG GCNConv): {error}",
            released=False,
        )
    return CellClasses(
        pygt.TGCN,
        pygt.MPNNLSTM,
        pygt.GCNConv_Fixed_W,
        f"released {PACKAGE} {pygt.version}",
        released=True,
    )


@cache
def evolvegcn_check() -> str:
    """Run the installed EvolveGCNO on three snapshots and say whether it evolves and learns."""
    try:
        pygt = import_pygt()
    except MissingPackageError as error:
        return f"EvolveGCNO was not checked: {error}."
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        cell = pygt.EvolveGCNO(3)
        x = torch.randn(5, 3)
    edges = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])
    seen = []
    total = x.new_zeros(())
    for _ in range(2):
        total = total + cell(x, edges).pow(2).sum()
        weight = getattr(cell, "weight", None)
        seen.append(None if weight is None else weight.detach().clone())
    evolves = None not in seen and not torch.equal(seen[0], seen[1])
    total.backward()
    leaves = dict(cell.named_parameters())
    first = [n for n, p in leaves.items() if "weight" in n and "recurrent" not in n]
    moved = {n for n, p in leaves.items() if p.grad is not None and bool(p.grad.abs().sum() > 0)}
    learns = set(leaves) == moved
    try:
        cell(x, edges).pow(2).sum().backward()
        again = "a second backward pass works"
    except RuntimeError:
        again = (
            "a second backward pass fails, as the evolved weight keeps the graph of the first, "
            "until reinitialize_weight() is called"
        )
    still = sorted(set(leaves) - moved)
    gradient = (
        f"its initial weight ({', '.join(first)}) and all parameters of its GRU get a gradient"
        if learns
        else f"no gradient reaches {', '.join(still)}"
    )
    return (
        f"Measured on EvolveGCNO of {PACKAGE} {pygt.version}: its weight "
        f"{'changes' if evolves else 'does not change'} from call to call; {gradient}; {again}."
    )
