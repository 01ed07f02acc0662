"""The scripts for a GPU machine, as far as a machine without one can play them through."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dgbench.harness.store import Store
from dgbench.lab.table import Table

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "scripts"

pytestmark = pytest.mark.skipif(not SCRIPTS.is_dir(), reason="no checkout: scripts do not travel")


def gpu_run(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        ["bash", str(SCRIPTS / "gpu_run.sh"), *arguments],
        capture_output=True,
        text=True,
        timeout=30,
    )


@pytest.mark.parametrize("name", ["", "pipad", "esdg", "dgc", "gnnflow", "tgcn"])
def test_a_dry_run_says_what_would_run_and_runs_nothing(name, tmp_path) -> None:
    out = tmp_path / "out"
    done = gpu_run("--dry-run", *([name] if name else []), str(out))
    assert done.returncode == 0, done.stderr
    assert not out.exists()
    assert done.stdout.splitlines()[-1].startswith("== summary")
    for path in set(re.findall(r"(?:tests|scripts)/[\w/]+\.py", done.stdout)):
        assert (ROOT / path).is_file(), path
    limits = [int(n) for n in re.findall(r"at most (\d+) s", done.stdout)]
    assert max(limits) <= 560  # nothing may outlast the whole
    if name:
        assert f"dgbench reproduce {name} --device cuda" in done.stdout


PARTS = ["lately", "tables", "placements", "races", "profile", "differences", "reproduce"]


def test_parts_share_the_time_in_their_order(tmp_path) -> None:
    done = gpu_run("--dry-run", *PARTS, str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "out").exists()
    said = done.stdout
    order = ["test_heavy_rows", "test_cuda_esdg", "test_esdg_ranked_cuda", "gpu_tables",
             "gpu_gnnflow", "run pipad/fig10", "gpu_profile", "run esdg/encoding esdg/fig4",
             "reproduce gnnflow",
             "reproduce esdg", "reproduce dgc", "reproduce pipad"]  # fmt: skip
    assert [said.index(word) for word in order] == sorted(said.index(word) for word in order)
    assert said.count("== building") == 1
    for path in set(re.findall(r"(?:tests|scripts)/[\w/]+\.py", said)):
        assert (ROOT / path).is_file(), path
    logs = re.findall(r"to ([\w.]+): ", said)
    assert len(logs) == len(set(logs))  # none is written over
    limits = [int(n) for n in re.findall(r"at most (\d+) s", said)]
    # In a dry run no time passes, so each part's limit is its share of all of it.
    assert sum(limits[4:9]) <= 560
    assert min(limits) >= 25


def test_every_part_can_be_asked_for_alone_and_with_others() -> None:
    usage = gpu_run("--help").stderr
    more = ["equality", "ceilings", "roofline", "ledger", "billion", "sanitizers", "all"]
    for part in [*PARTS, *more, "tests", "operators", "pipad", "esdg", "dgc", "gnnflow"]:
        assert re.search(rf"\b{part}\b", usage), part
        assert "== summary" in gpu_run("--dry-run", part, "tables").stdout


def test_all_four_sanitizers_share_the_time_after_the_driver_alone() -> None:
    said = gpu_run("--dry-run", "sanitizers").stdout
    tools = ["none", "memcheck", "racecheck", "synccheck", "initcheck"]
    assert re.findall(r"sanitize.sh (\w+)", said) == tools
    limits = [int(n) for n in re.findall(r"at most (\d+) s, to \w+.log: bash", said)]
    assert limits[0] * len(tools) <= 560
    assert "found nothing" not in said  # nothing was run


@pytest.mark.parametrize(
    ("exits", "log", "status", "said"),
    [
        (0, "========= ERROR SUMMARY: 0 errors", 0, "found nothing"),
        (9, "========= Invalid __global__ write of size 4 bytes", 1, "FOUND SOMETHING"),
        (1, "scan_gru  WRONG", 1, "FAILED (1)"),
        (124, "========= COMPUTE-SANITIZER", 1, "not finished"),  # the clock stopped it
        (124, "========= Error: Race reported between Write and Read", 1, "FOUND SOMETHING"),
    ],
)
def test_what_a_sanitizer_finds_fails_the_part(exits, log, status, said, tmp_path) -> None:
    """Stand-ins for compute-sanitizer, which finds nothing or something, and for the driver."""
    env = fake_machine(tmp_path, 'echo "ran $*"')
    put_tool(tmp_path, "compute-sanitizer", f'echo "asked $*"; echo "{log}"; exit {exits}')
    driver = (
        'printf "#!/bin/sh\\necho cases right" >"$2/kernel_driver"; chmod +x "$2/kernel_driver"'
    )
    put_tool(tmp_path, "cmake", f'mkdir -p "$2"; {driver}')
    done, out = run_part(tmp_path, env, "sanitizers")
    assert done.returncode == status, done.stdout + done.stderr
    for tool in ("memcheck", "racecheck", "synccheck", "initcheck"):
        asked = (out / f"{tool}.log").read_text()
        assert re.search(rf"asked --tool {tool} .*/kernel_driver\n", asked), asked
        assert f"{tool}: {said}" in done.stdout
    assert "none: found nothing" in done.stdout


def test_sanitized_cases_are_cases_of_the_driver() -> None:
    sources = (ROOT / "kernels_cuda" / "common" / "driver").glob("*.cpp")
    known = {
        n for path in sources for n in re.findall(r"^DRIVER_CASE\((\w+)", path.read_text(), re.M)
    }
    for part in ("operators", "pipad", "esdg", "dgc", "gnnflow"):
        (named,) = re.findall(r"sanitize.sh memcheck (.+)", gpu_run("--dry-run", part).stdout)
        assert set(named.split()) <= known, part


def test_without_a_driver_nothing_counts_as_checked(tmp_path) -> None:
    env = fake_machine(tmp_path, 'echo "ran $*"')
    put_tool(tmp_path, "cmake", 'echo "no such target" >&2; exit 1')
    put_tool(tmp_path, "compute-sanitizer", "exit 0")
    done, out = run_part(tmp_path, env, "sanitizers")
    assert done.returncode == 1
    assert done.stdout.count("not run") == 5
    assert "no such target" in done.stdout
    assert "is no program" in (out / "memcheck.log").read_text()


def run_part(tmp_path, env, part: str) -> tuple[subprocess.CompletedProcess, Path]:
    out = tmp_path / "out"
    done = subprocess.run(
        ["bash", str(SCRIPTS / "gpu_run.sh"), part, str(out)],
        capture_output=True, text=True, timeout=60, env=env,
    )  # fmt: skip
    return done, out


def put_tool(tmp_path, name: str, body: str) -> None:
    tool = tmp_path / "tools" / name
    tool.write_text(f"#!/usr/bin/env bash\n{body}\n")
    tool.chmod(0o755)


def test_tests_that_need_the_device_alone_come_last() -> None:
    shared, single = gpu_run("--dry-run", "tests").stdout.split("need the device alone")
    for path in re.findall(r"tests/[\w/]+\.py", single):
        assert f"--ignore {path}" in shared


def fake_machine(tmp_path, python: str) -> dict[str, str]:
    """An environment with tools that stand for a GPU machine's; `python` is a script's body."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, body in {"nvidia-smi": "echo GPU", "nvcc": "echo nvcc", "fake": python}.items():
        (tools / name).write_text(f"#!/usr/bin/env bash\n{body}\n")
        (tools / name).chmod(0o755)
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    kept = {k: v for k, v in os.environ.items() if not k.startswith("DGBENCH_")}
    return kept | {"PATH": path, "PYTHON": "fake", "TMPDIR": str(tmp_path)}


def test_parts_run_one_after_the_other_and_leave_no_process(tmp_path) -> None:
    """A stand-in for Python answers at once, but leaves a process behind at every call."""
    env = fake_machine(
        tmp_path, 'sleep 300 >/dev/null 2>&1 & echo $! >>"$TMPDIR/left"; echo "ran $*"'
    )
    out = tmp_path / "out"
    done = subprocess.run(
        ["bash", str(SCRIPTS / "gpu_run.sh"), "lately", "tables", "profile", str(out)],
        capture_output=True, text=True, timeout=60, env=env,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("== summary") == 3
    for log in ("build.log", "lately.log", "memory.log", "ranks.log", "tables.txt", "profile.txt"):
        assert "ran" in (out / log).read_text()
    running = [int(n) for n in (tmp_path / "left").read_text().split() if alive(int(n))]
    # Those of calls that were not limited (the machine's and the build's questions) are not ours.
    for number in running:
        os.kill(number, 9)
    assert len(running) <= 2


def alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_the_profile_runs_on_a_cpu_too(tmp_path) -> None:
    out = tmp_path / "rows.jsonl"
    command = [
        sys.executable, str(SCRIPTS / "gpu_profile.py"), "--device", "cpu", "--out", str(out),
        "--preset", "quick", "--models", "tgcn_model", "--contenders", "pipad", "--steps", "2",
    ]  # fmt: skip
    env = {**os.environ, "DGBENCH_CACHE": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = (json.loads(line) for line in out.read_text().splitlines())
    if "failed" in row:  # without the real data
        assert "pems08" in row["failed"]
        return
    assert row["step_ms"] > 0
    assert row["top_operators"]
    assert not row["top_kernels"]


def test_esdg_compares_before_it_reproduces() -> None:
    said = gpu_run("--dry-run", "esdg").stdout
    limits = [int(n) for n in re.findall(r"at most (\d+) s", said)]
    assert sum(limits[1:-1]) <= 400  # a build of half a minute leaves time for the reproduction
    order = ["test_difference_kernel", "test_cuda_esdg", "test_esdg_ranked_cuda"]
    order.append("reproduce esdg")
    assert [said.index(word) for word in order] == sorted(said.index(word) for word in order)


def test_gnnflow_compares_before_it_measures() -> None:
    said = gpu_run("--dry-run", "gnnflow").stdout
    limits = [int(n) for n in re.findall(r"at most (\d+) s", said)]
    assert sum(limits[1:-1]) <= 400
    order = ["test_temporal_device", "test_cuda_gnnflow", "gpu_gnnflow", "reproduce gnnflow"]
    assert [said.index(word) for word in order] == sorted(said.index(word) for word in order)


@pytest.mark.parametrize("arguments", [("a", "b"), ("--help",), ("--dry-run", "esdg", "a", "b")])
def test_wrong_arguments_are_answered_with_the_usage(arguments) -> None:
    done = gpu_run(*arguments)
    assert done.returncode == 2
    assert "pipad, esdg, dgc, gnnflow" in done.stderr
    assert "PYTHON" in done.stderr


def test_the_measurements_of_gnnflow_run_on_a_cpu_too(tmp_path) -> None:
    out = tmp_path / "rows.jsonl"
    command = [
        sys.executable, str(SCRIPTS / "gpu_gnnflow.py"), "--device", "cpu", "--out", str(out),
        "--edges", "4000", "--vertices", "300", "--inserted", "500", "--batches", "20",
        "--rows", "400", "--dim", "6", "--asked", "90", "--rounds", "2",
    ]  # fmt: skip
    env = {**os.environ, "DGBENCH_CACHE": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["what"] for row in rows] == ["build"] + ["sample"] * 24 + ["cache"] * 3
    assert all("failed" not in row for row in rows)  # sorted rows sample what the store samples
    fed = {"cpu, fed", "tgl-style, fed"}
    assert {row["placement"] for row in rows[1:25]} == {"cpu", "cpu, 2 threads"} | fed
    assert all(1.0 in [row["over_fed"] for row in rows[i : i + 4]] for i in range(1, 25, 4))
    assert [row["hits"] for row in rows[25:]] == [0.0, 0.7, 1.0]


def test_tables_of_a_device_are_kept_as_rows_that_a_run_has(tmp_path, monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    keep_tables = importlib.import_module("keep_tables")
    sample = {"what": "sample", "policy": "recent", "fanouts": [10], "batch": 600, "walk": "list",
              "placement": "cuda", "seconds": [2e-4, 4e-4, 3e-4], "neighbours": 17998,
              "over_cpu": 1.7, "low": 1.2, "high": 2.4, "device_s": 2e-5}  # fmt: skip
    tables = {
        "tables": [
            {"group": "limit", "name": "copy", "us": 500.0, "bytes": 2e9, "error": 0.0,
             "samples_us": [500.0]},
            {"group": "rivals d=2", "name": "spmm", "us": 100.0, "bytes": 1e8, "error": 8e-8,
             "samples_us": [99.0, 100.0, 101.0]},
            {"group": "arrival", "name": "unpack", "us": 9.0, "bytes": 8.0, "error": 0.0,
             "samples_us": [9.0]},
        ],
        "placements": [sample],
        "tgcn_operators": [
            {"what": "m 1000", "contender": "CPU", "seconds": 3e-3, "draws": 9},
            {"what": "m 1000", "failed": "wrong"},
            {"what": "n 1e4", "contender": "keys", "seconds": 8e-4, "bytes": 80000},
        ],
    }  # fmt: skip
    with pytest.raises(FileNotFoundError, match="no table"):
        keep_tables.keep(tmp_path, "gpu", tmp_path / "kept")
    for name, lines in tables.items():
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (tmp_path / f"{name}.jsonl").write_text(text)
    run = tmp_path / "runs" / "one"
    run.mkdir(parents=True)
    (run / "provenance.json").write_text('{"facts": {"machine": {}}, "crc32": "0"}')
    (run / "run.json").write_text('{"started": "2026-11-22T13:17:48+00:00"}')
    folder, count = keep_tables.keep(tmp_path, "gpu", tmp_path / "kept")
    rows = Store.open(folder).rows()
    assert count == len(rows) == 5
    assert [(row.experiment, row.status) for row in rows] == [
        ("device_tables", "ok"), ("device_tables", "void"), ("device_samples", "ok"),
        ("device_draws", "check"), ("device_draws", "ok"),
    ]  # fmt: skip
    assert {(row.device, row.paper, row.provenance) for row in rows} == {
        ("cuda", "operators", "facts")
    }
    spmm, copied = Table.of(rows[:1]).where("operation_time"), Table.of(rows[:1]).where(of="copy")
    assert (spmm[0]["method"], spmm[0].value, len(spmm[0].of.samples)) == ("spmm", 1e-4, 3)
    assert copied.values == [2e9 / 5e-4]
    (gain,) = Table.of(rows).where("speedup")
    assert (gain.value, gain.of.low, gain.of.high, gain["baseline"]) == (1.7, 1.2, 2.4, "cpu")


def test_one_run_holds_all_that_a_device_is_asked() -> None:
    """Correctness first, then operators, then the large graph, then the papers, each bounded."""
    order = ["equality", "roofline", "sanitizers", "placements", "billion", "reproduce"]
    said = gpu_run("--dry-run", *order).stdout
    words = ["test_every_system", "kernel_resources", "gpu_roofline", "sanitize.sh memcheck",
             "gpu_gnnflow", "gpu_billion", "reproduce gnnflow"]  # fmt: skip
    assert [said.index(word) for word in words] == sorted(said.index(word) for word in words)
    assert said.count("== summary") == len(order)
    limits = dict(re.findall(r"at most (\d+) s, to (\w+)\.txt", said))
    limits = {log: int(seconds) for seconds, log in limits.items()}
    assert all(60 >= limits[log] >= 10 for log in ("kernels", "roofline"))
    assert limits["billion"] >= 120
    for path in set(re.findall(r"(?:tests|scripts)/[\w/]+\.py", said)):
        assert (ROOT / path).is_file(), path


def test_all_of_a_device_run_is_one_word() -> None:
    """Correctness, what the device can do, operators and predictions, then the papers."""
    said = gpu_run("--dry-run", "all").stdout
    words = ["need the device alone", "sanitize.sh memcheck", "test_every_system", "gpu_ceilings",
             "gpu_roofline", "gpu_ledger", "gpu_gnnflow", "reproduce gnnflow"]  # fmt: skip
    assert [said.index(word) for word in words] == sorted(said.index(word) for word in words)
    assert said.count("== summary") == len(words)
    logs = re.findall(r"to ([\w.]+): ", said)
    assert len(logs) == len(set(logs))  # none is written over
    limits = {log: int(seconds) for seconds, log in re.findall(r"at most (\d+) s, to (\w+)", said)}
    assert max(limits.values()) <= 540
    # In a dry run no time passes: what comes later may also use what those before it left.
    assert limits["tests"] + limits["memcheck"] <= 120
    assert limits["ceilings"] >= 25  # with the compiler's five
    assert limits["ledger"] >= 70
    for path in set(re.findall(r"(?:tests|scripts)/[\w/]+\.py", said)):
        assert (ROOT / path).is_file(), path


PTXAS = """
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z3fooIfEvPf' for 'sm_90'
ptxas info    : Function properties for _Z3fooIfEvPf
    16 bytes stack frame, 12 bytes spill stores, 20 bytes spill loads
ptxas info    : Used 64 registers, used 1 barriers, 4352 bytes smem, 400 bytes cmem[0]
ptxas info    : Compiling entry function '_Z3barv' for 'sm_90'
ptxas info    : Function properties for _Z3barv
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, used 0 barriers, 352 bytes cmem[0]
"""


def test_registers_and_spills_are_read_from_the_assembler(monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    tool = importlib.import_module("kernel_resources")
    foo, bar = tool.parse(PTXAS, "a.cu")
    assert (foo.kernel, foo.arch, foo.file) == ("_Z3fooIfEvPf", "sm_90", "a.cu")
    assert (foo.registers, foo.stack, foo.spill_stores, foo.spill_loads, foo.shared) == (
        64, 16, 12, 20, 4352)  # fmt: skip
    assert (bar.registers, bar.spill_stores, bar.shared) == (8, 0, 0)
    name = "void dgbench::(anonymous namespace)::rows<4, true, x::F<2>>(float const*, int)"
    assert tool.short(name) == "rows<4, true, x::F<2>>"
    assert tool.short("plain(int)") == "plain"
    monkeypatch.setattr(tool, "nvcc", lambda: "")
    monkeypatch.setattr(sys, "argv", ["kernel_resources.py"])
    assert tool.main() == 0  # where there is no compiler that is said, and is no failure


def test_operators_stand_against_their_roofs(tmp_path, monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    roofline = importlib.import_module("gpu_roofline")
    out = tmp_path / "rows.jsonl"
    monkeypatch.setattr(sys, "argv", [
        "gpu_roofline.py", "--device", "cpu", "--vertices", "300", "--entries", "2000", "--rows",
        "20", "--roots", "20", "--rounds", "1", "--out", str(out),
    ])  # fmt: skip
    with pytest.raises(SystemExit) as ended:
        roofline.main()
    assert ended.value.code == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert rows[0]["what"] == "roofs"
    assert {row["what"] for row in rows[1:]} == {"operator"}
    assert len(rows) >= 20
    for row in rows[1:]:
        assert row["of_roof"] > 0
        assert row["fetched"] >= 0.9 * row["moved"]
    by_name = {row["name"]: row for row in rows[1:]}
    assert by_name["GRU, both ways"]["products"] == 3 * by_name["GRU, forward"]["products"]
    assert by_name["spmm, 2 wide"]["fetched"] > 2 * by_name["spmm, 2 wide"]["moved"]  # 8 of 32 B


def test_kernels_are_read_from_the_profilers_trace(tmp_path, monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    roofline = importlib.import_module("gpu_roofline")
    facts = {"registers per thread": 64, "shared memory": 4352, "block": [256, 1, 1],
             "est. achieved occupancy %": 50}  # fmt: skip
    name = "void dgbench::rows<4, true>(float const*, int)"
    trace = {"traceEvents": [
        {"cat": "kernel", "name": name, "dur": 3.0, "args": facts},
        {"cat": "kernel", "name": name.replace("4", "2"), "dur": 5.0, "args": facts},
        {"cat": "kernel", "name": "other(int)", "dur": 1.5, "args": {}},
        {"cat": "cpu_op", "name": "aten::add", "dur": 9.0},
    ]}  # fmt: skip
    resources = tmp_path / "kernels.jsonl"
    lines = [{"kernel": "rows<4, true>", "registers": 64, "spill_stores": 12, "spill_loads": 16},
             {"kernel": "rows<2, true>", "registers": 64, "spill_stores": 0,
              "spill_loads": 0}]  # fmt: skip
    resources.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = roofline.read_trace(trace, roofline.spills_of(str(resources)))
    assert [(k.name, k.us, k.count, k.registers, k.spilled) for k in found] == [
        ("rows", 8.0, 2, 64, 28), ("other", 1.5, 1, None, None)]  # fmt: skip
    assert roofline.spills_of(str(tmp_path / "none")) == roofline.spills_of(None) == {}


def test_a_graph_of_a_billion_edges_is_planned_by_count(tmp_path, monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    billion = importlib.import_module("gpu_billion")
    whole = billion.plan(1.0)
    assert (whole.events, whole.vertices) == (1_468_365_182, 41_652_230)
    assert whole.host["hold rows"] == 16 * whole.events + 8 * whole.vertices
    assert whole.device["train"] == whole.vertices * (7 * 64 * 4 + 40)
    for host, device in ((200e9, 139e9), (128e9, 125e9)):
        assert billion.choose(billion.SCALES, host, device).scale == 1
    assert billion.choose(billion.SCALES, 40e9, 139e9).scale == 0.5
    assert billion.choose(billion.SCALES, 200e9, 15e9).scale == 0.125  # a T4
    least = billion.choose(billion.SCALES, 1e3, 1e3)
    assert (least.scale, least.fits(1e3, 1e3)) == (min(billion.SCALES), False)


def test_the_part_of_a_billion_edges_runs_on_a_cpu_too(tmp_path, monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    billion = importlib.import_module("gpu_billion")

    def run(*more: str) -> list[dict]:
        out = tmp_path / f"{len(list(tmp_path.iterdir()))}.jsonl"
        command = [
            "gpu_billion.py", "--device", "cpu", "--scale", "0.00025", "--stretch", "4000",
            "--interval", "1600", "--hidden", "4", "--roots", "20", "--out", str(out), *more,
        ]  # fmt: skip
        monkeypatch.setattr(sys, "argv", command)
        with pytest.raises(SystemExit) as ended:
            billion.main()
        assert ended.value.code == 0
        return [json.loads(line) for line in out.read_text().splitlines()]

    rows = {row["what"]: row for row in run()}
    assert list(rows) == ["plan", "generate", "check", "build", "bring", "sample half",
                          "sample around", "train", "epoch"]  # fmt: skip
    assert not any("failed" in row for row in rows.values())
    assert rows["generate"]["edges"] == rows["generate"]["of"] == rows["plan"]["edges"]
    assert rows["check"]["equal"]
    assert rows["sample half"]["counted_right"]
    assert rows["build"]["bytes"] == rows["plan"]["host"]["hold rows"] + 8
    assert (rows["epoch"]["evidence"], rows["epoch"]["whole"]) == ("projected", False)
    # A clock that has run out leaves rows that say so, and nothing that looks like a result.
    cut = {row["what"]: row for row in run("--seconds", "0")}
    assert cut["train"]["failed"] == cut["build and sample"]["failed"] == "out of time"
    assert "epoch" not in cut
    assert cut["generate"]["edges"] > 0


def test_a_batch_job_that_is_asked_to_stop_waits_for_the_report(tmp_path) -> None:
    run = tmp_path / "nox"
    run.write_text(
        "#!/usr/bin/env bash\n"
        f"trap 'sleep 0.5; echo \"$@\" >{tmp_path}/report; exit 130' TERM\n"
        f"touch {tmp_path}/began\n"
        "while :; do sleep 0.1; done\n"
    )
    run.chmod(0o755)
    job = subprocess.Popen(
        ["bash", str(SCRIPTS / "slurm_reproduce.sh"), "pipad", "--preset", "full"],
        env=os.environ | {"NOX": str(run), "SLURM_SUBMIT_DIR": str(tmp_path)},
    )
    while not (tmp_path / "began").exists():
        assert job.poll() is None
    job.terminate()
    assert job.wait(timeout=30) != 0
    assert (tmp_path / "report").read_text() == "-s reproduce -- pipad --preset full\n"
