"""A server that finds the CUDA driver awake: its children must not inherit that."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest
import waking_papers
from fake_papers import cell, make_paper

from dgbench.harness.plan import Plan
from dgbench.harness.runner import ForkServer, run_plan
from dgbench.harness.store import Store
from tests.observed import numbers

SOURCE = """
static int awake = 0;
extern "C" int cuInit(unsigned) { awake = 1; return 0; }
extern "C" int cuDeviceGetCount(int* count) { *count = 1; return awake ? 0 : 3; }
"""
pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="no g++ to make a driver with")


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    """A library that calls itself as NVIDIA's driver does, and knows whether it was woken."""
    folder = tmp_path_factory.mktemp("driver")
    (folder / "driver.cpp").write_text(SOURCE)
    subprocess.run(
        ["g++", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "driver.cpp", "-o", "driver.so"],
        cwd=folder,
        check=True,
    )
    return str(folder / "driver.so")


def test_what_libraries_put_into_torch_is_no_change_of_a_plugin():
    """torch-geometric replaces `torch.select`, and torch's own compiler `torch.manual_seed` and,
    when the first compiled function is called, methods of modules and optimisers."""
    code = (
        "from dgbench.runtime.cuda_driver import import_patching\n"
        "from dgbench.harness.runner.replaced import replaced_functions, shared_functions\n"
        "import_patching(); shared_functions()\n"
        "import torch, torch_geometric.nn, torch._dynamo\n"
        "layer = torch.nn.Linear(2, 2); optimiser = torch.optim.Adam(layer.parameters())\n"
        "torch.compile(layer, backend='eager')(torch.ones(1, 2)).sum().backward()\n"
        "optimiser.step()\n"
        "assert replaced_functions() == []\n"
        "torch.relu = lambda x: x\n"
        "assert 'torch.relu' in replaced_functions()[0]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def run(tmp_path, server):
    plan = Plan.build([make_paper(cell("ok"), cell("raise"))], None, "smoke")
    run_plan(plan, store := Store.create(tmp_path), lookup=waking_papers.lookup, threads=1,
             limits=False, server=server)  # fmt: skip
    return {row.params["how"]: row for row in store.written() if not row.instrumented}


@pytest.mark.parametrize(
    "where", ["an optional package", pytest.param("a paper", marks=pytest.mark.nightly)]
)
def test_children_start_without_the_driver_that_was_woken(tmp_path, monkeypatch, driver, where):
    modules = ["torch"]
    if where == "a paper":
        monkeypatch.setenv("DGBENCH_TEST_DRIVER", driver)
    else:
        (tmp_path / "waker.py").write_text(f"import ctypes; ctypes.CDLL({driver!r}).cuInit(0)")
        monkeypatch.syspath_prepend(str(tmp_path))
        modules.append("waker")
    with ForkServer(
        waking_papers.lookup, ["fake"], threads=1, log=tmp_path / "log", modules=tuple(modules)
    ) as server:
        assert server.process.poll() is None
        notes = "; ".join(server.notes)
        if where == "a paper":
            assert "woken by" in notes
            assert "every process imports all for itself" in notes
        else:
            assert notes == "the CUDA driver was woken by waker: less is imported ahead"
        rows = run(tmp_path, server)
    assert rows["ok"].status == "ok"
    assert numbers(rows["ok"])["edges"] == 7
    assert rows["raise"].status == "crash"
