"""The ceilings of a device, as far as a machine without one can play them through."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "scripts"
EMULATED = ROOT / "tests" / "cuda"

pytestmark = pytest.mark.skipif(not SCRIPTS.is_dir(), reason="no checkout: scripts do not travel")


@pytest.fixture
def ceilings(monkeypatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module("gpu_ceilings")


@pytest.fixture
def bench(ceilings) -> ModuleType:
    return importlib.import_module("gpu_ceilings_bench")


@pytest.mark.parametrize("nodes", [1, 2, 3, 64, 1000])
def test_a_chase_goes_through_every_line_before_it_comes_back(ceilings, nodes) -> None:
    following = ceilings.cycle(nodes, "cpu")
    at, seen = 0, []
    for _ in range(nodes):
        seen.append(at)
        at = int(following[at])
    assert at == 0
    assert sorted(seen) == list(range(nodes))


def test_bytes_and_products_are_counted(ceilings) -> None:
    # 256 threads that make 8 requests of 16 bytes: 2 KiB of rows each time.
    assert ceilings.request_bytes(256, 8, 16) == 8 * 256 * 16
    # 8 warps, 3 rounds of 8 products of 16 x 8 by 8 x 8.
    assert ceilings.tile_flops(256, 3) == 8 * 3 * 8 * 2 * 16 * 8 * 8
    assert ceilings.span(None) == "-"
    assert ceilings.span((4.3, 4.3)) == "4.3"
    assert ceilings.span((15, 20)) == "15-20"


def test_a_row_says_why_it_was_not_measured(ceilings) -> None:
    class Machine:
        device = "cpu"

    def refuse(bench) -> float:
        raise ceilings.BenchRefused("a table does not fit")

    def fail(bench) -> float:
        raise RuntimeError("a thread has 3, not 4")

    def row(measure, assumed=(15.0, 20.0), over=False) -> dict:
        return ceilings.row_of(ceilings.CeilingRow("it", "GB/s", assumed, measure), Machine(), over)

    assert row(lambda bench: 35.0)["ratio"] == 2
    assert row(lambda bench: 35.0, None)["ratio"] is None
    for measure, said, refused in ((refuse, "does not fit", True), (fail, "3, not 4", False)):
        found = row(measure)
        assert said in found["failed"]
        assert found["refused"] is refused
        assert "measured" not in found
        assert said in ceilings.shown(found)
    late = row(lambda bench: 35.0, over=True)
    assert (late["failed"], late["refused"]) == ("out of time", True)


def test_sums_that_miss_a_load_are_found(ceilings) -> None:
    ceilings.same(torch.full((5,), 16.0), 16.0, "it")
    with pytest.raises(RuntimeError, match=r"12\.0, not 16"):
        ceilings.same(torch.tensor([16.0, 12.0]), 16.0, "it")


def test_every_assumption_is_in_the_plan(ceilings, monkeypatch, capsys) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu_ceilings.py", "--plan"])
    ceilings.main()
    said = capsys.readouterr().out
    for what in ("device copy", "L2 read", "random 32 B, table of 8 GB", "reduce float4",
                 "shared memory", "mapped host, random 128 B", "launch from C++", "graph node",
                 "eager torch", "mma.sync", "fp32"):  # fmt: skip
        assert what in said, what


def test_the_kernels_do_what_the_rows_say(ceilings, bench, tmp_path, monkeypatch, capsys) -> None:
    """The kernels' own source over a stand-in for the runtime, driven as on a device."""
    monkeypatch.syspath_prepend(str(EMULATED))
    emulator = importlib.import_module("emulator")
    if reason := emulator.missing():
        pytest.skip(reason)
    source = tmp_path / "ceilings.cpp"
    clock = "inline long long clock64() { return emulated::ticks += 7; }\n"
    text = emulator.rewrite(bench.SOURCE.read_text())
    source.write_text(text.replace("namespace {", clock + "namespace {", 1))
    library = tmp_path / "ceilings.so"
    subprocess.run(["g++", "-std=c++17", "-O1", "-w", "-fPIC", "-shared", "-pthread",
                    emulator.UNFORTIFIED, f"-I{emulator.RUNTIME}", str(source), "-o", str(library)],
                   check=True)  # fmt: skip
    out = tmp_path / "rows.jsonl"
    monkeypatch.setattr(sys, "argv", [
        "gpu_ceilings.py", "--device", "cpu", "--library", str(library), "--shrink", "2000",
        "--rounds", "1", "--out", str(out),
    ])  # fmt: skip
    with pytest.raises(SystemExit) as ended:
        ceilings.main()
    assert ended.value.code == 0, capsys.readouterr().out
    found = [json.loads(line) for line in out.read_text().splitlines()][1:]
    assert [row["what"] for row in found] == [row.what for row in ceilings.rows()]
    refused = {row["what"]: row["failed"] for row in found if "failed" in row}
    assert refused == {"L2 cache, as reported": "a CPU", "graph node": "no graphs on a CPU"}
    for row in found:
        assert row["what"] in refused or row["measured"] > 0
    shared = next(row for row in found if "shared" in row["what"])
    assert shared["measured"] == pytest.approx(7 / (65_536 // 2000), rel=0.1)


@pytest.mark.parametrize("arch", ["sm_75", "sm_90"])
def test_the_kernels_compile(bench, tmp_path, arch) -> None:
    if not bench.nvcc():
        pytest.skip("no nvcc here")
    assert bench.compile_kernels(arch, tmp_path).stat().st_size > 0


def test_a_compiler_that_fails_is_reported(bench, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(bench, "nvcc", lambda: "")
    with pytest.raises(bench.BenchRefused, match="no nvcc"):
        bench.compile_kernels("sm_90", tmp_path)
    monkeypatch.setattr(bench, "nvcc", lambda: "/bin/false")
    with pytest.raises(bench.BenchRefused, match="does not compile"):
        bench.compile_kernels("sm_90", tmp_path)
