"""A server that finds the CUDA driver awake: its children must not inherit that."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from fake_papers import cell, lookup, make_paper

from dgbench.harness.plan import Plan
from dgbench.harness.runner import ForkServer, run_plan
from dgbench.harness.store import Store
from tests.observed import numbers

SOURCE = """
static int awake = 0;
extern "C" int cuInit(unsigned) { awake = 1; return 0; }
extern "C" int cuDeviceGetCount(int* count) { *count = 1; return awake ? 0 : 3; }
"""
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(not shutil.which("g++"), reason="no g++ to make a driver with"),
]


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


def test_children_start_without_the_driver_that_was_woken(tmp_path, monkeypatch, driver):
    (tmp_path / "waker.py").write_text(f"import ctypes; ctypes.CDLL({driver!r}).cuInit(0)")
    monkeypatch.syspath_prepend(str(tmp_path))
    modules, log = ("torch", "waker"), tmp_path / "log"
    with ForkServer(lookup, ["fake"], threads=1, log=log, modules=modules) as server:
        assert "waker" in "; ".join(server.notes)
        plan = Plan.build([make_paper(cell("ok"), cell("raise"))], None, "smoke")
        with Store.create(tmp_path) as store:
            run_plan(plan, store, lookup=lookup, threads=1, limits=False, server=server)
            rows = {row.params["how"]: row for row in store.written() if not row.instrumented}
    assert rows["ok"].status == "ok"
    assert numbers(rows["ok"])["edges"] == 7
    assert rows["raise"].status == "crash"
