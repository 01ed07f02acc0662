"""The command: light to start, plain about mistakes, the same content as JSON."""

from __future__ import annotations

import ast
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import fake_run
import pandas as pd
import pytest
from msgspec.structs import replace

from dgbench.harness.cli import main
from dgbench.harness.cli.choosing import keep_named
from dgbench.harness.compare import compare_runs
from dgbench.harness.store import Store
from dgbench.harness.terminal.comparison import comparison_text
from dgbench.runtime.errors import DgbenchError
from dgbench.systems.base import registry


def call(*words: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(list(words))
    return int(end.value.code or 0)


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A run of the toy paper, with the paper known to the registry."""

    class Point:
        name, value, dist = "toy", "fake_run:PAPER", None
        paper = fake_run.light_paper(tmp_path)

        def load(self):
            return self.paper

    class Bad(Point):
        name, value = "bad", "nowhere:PAPER"

        def load(self):
            raise ImportError("no module named nowhere")

    real = registry._points

    def points(group):
        if group == registry.PAPERS:
            return {"toy": Point(), "bad": Bad()}
        return real(group)

    monkeypatch.setattr(registry, "_points", points)
    monkeypatch.setenv("DGBENCH_RESULTS", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)
    return fake_run.make_run(tmp_path / "runs")


def test_help_is_quick_and_imports_nothing_heavy():
    code = (
        "import sys\n"
        "from dgbench.harness.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "names = {'torch', 'matplotlib', 'pandas', 'seaborn', 'scipy', 'jinja2'}\n"
        "heavy = names & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    commands = "list run reproduce repeat claims compare report data doctor"
    for command in commands.split():
        assert f"\n  {command} " in done.stdout


@pytest.mark.parametrize("command", ["run", "reproduce", "claims", "compare", "report", "list"])
def test_every_command_has_an_example(command, capsys):
    assert call(command, "--help") == 0
    assert f"Example: dgbench {command}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("claims", "toi"), "did you mean: toy?"),
        (("run", "toy/fgi1"), "toy/fig1"),
        (("run", "toy"), "dgbench reproduce toy"),
        (("run",), "dgbench list experiments"),
        (("run", "toy/fig1", "--group", "nothing"), "--group is 'nothing', allowed: "),
        (("run", "--resume", "last", "--group", "a"), "leave out --group"),
        (("run", "toy/fig1", "--threads", "0"), "--threads is 0, allowed: 1 to "),
        (("run", "toy/fig1", "--threads", "1", "--cluster", "c.toml"), "leave one of both out"),
        (("reproduce", "bad"), "nowhere"),
        (("reproduce", "toy", "--preset", "quik"), "quick"),
        (("reproduce", "toy", "--device", "gpu"), "allowed: auto, cpu, cuda"),
        (("reproduce", "toy", "--retry", "failed"), "--resume last"),
        (("reproduce", "toy", "--resume", "nothing"), "run 'nothing' is not known"),
        (("reproduce", "toy", "--resume", ""), "--resume is '', allowed: a run"),
        (("reproduce", "toy", "--out", ""), "--out is '', allowed: a path that is not empty"),
        (("report", "last", "--out", " "), "--out is ' ', allowed"),
        (("compare", "last", "last", "--out", ""), "--out is '', allowed"),
        (("calibrate", "pipad", "--out", ""), "--out is '', allowed"),
        (("export", ""), "OUT is '', allowed"),
        (("report", ""), "the run is '', allowed"),
        (("list", "paper"), "papers"),
        (("list", "SYSTEMS"), "did you mean: systems?"),
        (("data", "info", "chickenpx"), "did you mean: chickenpox?"),
        (("data", "list", "--paper", "pipda"), "did you mean: pipad?"),
        (("calibrate", "pipda"), "did you mean: pipad"),
        (("export", "rows.csv", "--what", "claim"), "did you mean: claims?"),
        (("compare", "lst", "last"), "did you mean: last?"),
        (("compare", "machine:nvidia", "last"), "machine 'nvidia'"),
        (("report", "none-such"), "is not known"),
        (("claims", "toy", "--run", "none-such"), "is not known"),
    ],
)
def test_a_mistake_is_one_line_and_a_hint(toy, words, said, capsys):
    assert call(*words) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert said in err
    assert "Traceback" not in err


def test_debug_shows_where(toy):
    from dgbench.runtime.errors import UnknownKeyError

    with pytest.raises(UnknownKeyError):
        main(["claims", "toi", "--debug"])


def test_list_reports_a_broken_plugin_and_goes_on(toy, capsys):
    assert call("list") == 0
    out = capsys.readouterr().out
    assert "toy/fig1" in out
    assert "broken: paper 'bad'" in out
    assert call("list", "--json") == 0
    plain = json.loads(capsys.readouterr().out)
    assert plain["broken"][0]["name"] == "bad"
    assert {e["id"] for e in plain["experiments"]} == {"toy/fig1", "toy/table9"}
    assert call("list", "papers", "--json") == 0
    assert json.loads(capsys.readouterr().out)[0]["name"] == "toy"


def test_claims_as_json_has_every_id(toy, capsys):
    assert call("claims", "toy", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [c["id"] for c in found] == [f"toy-fig{i}-what-is-claimed" for i in range(24)]
    for claim in found:
        assert {"id", "verdict", "measured", "paper", "reason", "row"} <= set(claim)
        assert claim["reason"]
    assert any(c["row"] for c in found)


def test_claims_without_a_run_are_all_there(toy, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("DGBENCH_RESULTS", str(tmp_path / "empty"))
    assert call("claims", "toy", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found) == 24


@pytest.mark.parametrize("paper", [(), ("--paper", "toy")])
def test_exported_claims_have_the_verdicts_of_the_run(toy, tmp_path, capsys, paper):
    with Store.open(toy, writable=True) as store:
        limits = replace(store.written()[0], id="limits", paper="-", experiment="machine")
        store.append(limits)
    assert call("claims", "toy", "--json") == 0
    expected = {claim["id"]: claim["verdict"] for claim in json.loads(capsys.readouterr().out)}
    assert call("export", str(tmp_path / "c.csv"), "--what", "claims", *paper) == 0
    table = pd.read_csv(tmp_path / "c.csv")
    assert dict(zip(table["id"], table["verdict"], strict=True)) == expected


def test_claims_in_words_and_what_they_need(toy, capsys):
    assert call("claims", "toy") == 0
    out = capsys.readouterr().out
    assert "toy-fig7-what-is-claimed" in out
    assert call("claims", "toy", "--needs") == 0
    assert "claims not run here" in capsys.readouterr().out


def test_report_prints_its_path(toy, capsys):
    assert call("report", "last") == 0
    last = capsys.readouterr().out.strip().splitlines()[-1]
    assert last.startswith("Report: ")
    assert last.endswith("report.html")


def test_compare_finds_what_is_slower(toy, tmp_path, capsys):
    same = fake_run.make_run(tmp_path / "runs", seed=2)
    slow = fake_run.make_run(tmp_path / "runs", scale=1.3, seed=3)
    assert call("compare", str(toy), str(same)) == 0
    out = capsys.readouterr().out
    assert "0 SLOW" in out
    assert out.strip().splitlines()[-1] == "exit 0: nothing slower"
    assert call("compare", str(toy), str(slow)) == 1
    out = capsys.readouterr().out
    assert "22 SLOW" in out
    assert "counters equal" in out
    assert out.strip().splitlines()[-1].startswith("exit 1: 22 x SLOW cell")
    assert call("compare", str(slow), str(toy), "--json") == 0
    plain = json.loads(capsys.readouterr().out)
    assert plain["counts"]["FAST"] == 22


def test_compare_sees_counters_and_new_failures(tmp_path):
    a = Store.open(fake_run.make_run(tmp_path))
    b = Store.open(fake_run.make_run(tmp_path, seed=2))
    changed = next(r for r in b.rows() if r.cell_hash == "c003")
    for row in b.rows():
        if row.cell_hash == changed.cell_hash:
            row.observed = [
                replace(one, value=one.value + 5) if one.metric == "edges" else one
                for one in row.observed
            ]
        if row.cell_hash == "c004":
            row.status = "crash"
            row.drop_numbers()
    found = compare_runs(a, b)
    assert found.exit_code == 1
    assert "1 counter that grew" in found.why
    assert "1 cell that fails now" in found.why
    assert "edges 1003 -> 1008" in comparison_text(found)


def test_nothing_in_common_is_said(tmp_path):
    a = Store.open(fake_run.make_run(tmp_path))
    empty = Store.create(tmp_path, {})
    empty.close()
    found = compare_runs(a, Store.open(empty.path))
    assert "no cell in common" in comparison_text(found)
    assert found.exit_code == 0


def test_output_survives_a_terminal_without_utf8(toy):
    code = "from dgbench.harness.terminal.text import say; say('±3.5 %')"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "+-3.5 %\n"


LISTINGS = [
    ("list",),
    ("data", "list"),
    ("claims", "toy"),
    ("claims", "toy", "--needs"),
    ("doctor",),
    ("compare", "A", "B"),
    ("compare", "A", "B", "--all"),
    ("repeat", "--of", "A", "B"),
    *(
        (*command.split(), "--help")
        for command in (
            "", "list", "run", "reproduce", "repeat", "claims", "compare", "report", "export",
            "data", "data list", "data info", "data fetch", "data twin", "doctor", "calibrate",
        )
    ),
]  # fmt: skip


@pytest.mark.parametrize("width", [80, 40])
@pytest.mark.parametrize("words", LISTINGS, ids=" ".join)
def test_no_line_is_longer_than_the_terminal(toy, tmp_path, words, width, monkeypatch, capsys):
    other = fake_run.make_run(tmp_path / "runs", scale=1.3, seed=3)
    names = {"A": str(toy), "B": str(other)}
    monkeypatch.setenv("COLUMNS", str(width))
    assert call(*(names.get(word, word) for word in words)) in (0, 1)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 2
    for line in lines:
        # a path is not cut, so that it can be copied
        assert len(line) <= width or len(line.split()) == 1 or str(tmp_path) in line, line
        assert "\x1b" not in line


@pytest.fixture
def command(warm_python, tmp_path):
    """Runs `dgbench` with a standard output of one's own; returns its code and its standard error.

    It comes to its end as any other process does, which the interpreter that forks it does not see.
    """

    def run(words, output):
        done = subprocess.run(
            [*warm_python, "-m", "dgbench", *words.split()], stdout=output, cwd=tmp_path,
            stderr=subprocess.PIPE, text=True, timeout=120, check=False,
        )  # fmt: skip
        os.close(output)
        return done.returncode, done.stderr

    return run


FULL = ["error: the standard output cannot be written: no space left on device"]


@pytest.mark.parametrize("words", ["list", "list --json", "data list"])
def test_a_full_output_is_one_sentence(command, words):
    code, said = command(words, os.open("/dev/full", os.O_WRONLY))
    assert code == 2
    assert said.splitlines() == FULL


def test_a_full_output_of_a_shell_is_one_sentence(tmp_path):
    line = f"{sys.executable} -m dgbench --help > /dev/full"
    done = subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, timeout=120, cwd=tmp_path
    )
    assert done.returncode == 2
    assert done.stderr.splitlines() == FULL


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_a_closed_output_is_one_sentence(closed, tmp_path):
    line = f"{sys.executable} -m dgbench list {closed}"
    done = subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, timeout=120, cwd=tmp_path
    )
    said = (done.stdout + done.stderr).splitlines()
    assert done.returncode == 2
    assert len(said) == (closed != ">&- 2>&-")
    assert all(line.startswith("error: ") for line in said)


def test_ctrl_c_while_python_ends_leaves_no_traceback(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import atexit, sys, time\n"
        "@atexit.register\n"
        "def late():\n"
        "    print('ending', file=sys.stderr, flush=True)\n"
        "    time.sleep(60)\n"
    )
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    with subprocess.Popen(
        [sys.executable, "-m", "dgbench", "list", "--help"], stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": path},
    ) as process:  # fmt: skip
        assert process.stderr.readline() == "ending\n"
        process.send_signal(signal.SIGINT)
        assert process.stderr.read() == ""
    assert process.returncode in (130, -signal.SIGINT)


@pytest.mark.parametrize("name", ["module://nowhere.backend", "nonsense"])
def test_figures_are_drawn_whatever_a_notebook_sets(name):
    code = (
        "import sys\n"
        "from dgbench.harness.cli import main\n"
        "try: main(['list', '--help'])\n"
        "except SystemExit: pass\n"
        "import matplotlib.pyplot\n"
        "matplotlib.pyplot.figure()\n"
    )
    env = os.environ | {"MPLBACKEND": name}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=env, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("words", ["list", "data list"])
def test_an_output_that_is_closed_early_is_no_error(command, words):
    reader, writer = os.pipe()
    os.close(reader)
    assert command(words, writer)[1] == ""
    reader, writer = os.pipe()
    with subprocess.Popen(["head", "-1"], stdin=reader, stdout=subprocess.PIPE, text=True) as head:
        os.close(reader)
        assert command(words, writer)[1] == ""
        assert len(head.communicate()[0].splitlines()) == 1


def test_a_folder_that_cannot_be_written_is_said_with_what_to_set(toy, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert call("run", "toy/fig1", "--preset", "smoke", "--out", str(tmp_path / "file")) == 2
    err = capsys.readouterr().err
    assert "Traceback" not in err
    assert err.startswith(f"error: cannot write {tmp_path / 'file'}")
    assert "--out" in err


def test_a_read_only_clone_is_said_with_what_to_set(toy, tmp_path, capsys, monkeypatch):
    def refuse(self, *_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(self))

    monkeypatch.setattr(Path, "mkdir", refuse)
    monkeypatch.setenv("DGBENCH_RESULTS", str(tmp_path / "clone"))
    assert call("run", "toy/fig1", "--preset", "smoke") == 2
    err = capsys.readouterr().err
    assert "Traceback" not in err
    assert "Read-only file system" in err
    assert "--out" in err


@pytest.mark.parametrize("name", ["noxfile.py", "src/dgbench/__main__.py"])
def test_an_old_python_is_one_sentence(name):
    path = Path(__file__).parents[2] / name
    ast.parse(path.read_text(), feature_version=(3, 9))
    code = (
        "import runpy, sys\n"
        "sys.version_info = (3, 9, 2)\n"
        f"runpy.run_path({str(path)!r}, run_name='__main__')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.startswith("error: dgbench needs Python 3.10 or newer")
    assert "Python 3.9" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_no_compiler_is_said_by_the_build(tmp_path):
    cmake = shutil.which("cmake")
    if cmake is None:
        pytest.skip("cmake is not installed")
    done = subprocess.run(
        [cmake, "-S", str(Path(__file__).parents[2]), "-B", str(tmp_path / "build")],
        capture_output=True, text=True, timeout=120,
        env={**os.environ, "CXX": str(tmp_path / "no-compiler")},
    )  # fmt: skip
    assert done.returncode != 0
    said = " ".join(done.stderr.split())
    assert "found no C++ compiler. Install one (Debian: apt-get install g++)" in said


def test_groups_are_chosen_by_name_and_stay_whole():
    names = ["pair/a", "pair/a", "pair/b", "alone"]
    plan = SimpleNamespace(cells=[SimpleNamespace(cell=SimpleNamespace(group=n)) for n in names])
    keep_named(plan, ("pair/a", "al*"))
    assert [one.cell.group for one in plan.cells] == ["pair/a", "pair/a", "alone"]
    with pytest.raises(DgbenchError, match=r"'pair/b', allowed: pair/a, alone"):
        keep_named(plan, ("pair/b",))
