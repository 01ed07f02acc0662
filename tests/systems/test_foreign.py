"""Contenders in a process of another Python: raced, gated and caught as all others are."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy
import psutil
import pytest

from dgbench.harness.runner.child import explain
from dgbench.lab.experiment import RunContext
from dgbench.runtime import touched
from dgbench.runtime.errors import DgbenchError
from dgbench.systems.base import Workload, race
from dgbench.systems.base.data import load
from dgbench.systems.base.foreign import SERVER, Foreign, ForeignSystem, ForeignTrainer
from dgbench.systems.base.stream import StreamWorkload
from dgbench.systems.base.timeline import TimelineWorkload, load_timeline

PLUGIN = Path(__file__).parents[1] / "plugin"
STUB = Path(__file__).with_name("foreign_stub.py")
TASK = Workload(
    dataset="chickenpox", snapshots=9, frame=4, model="tgcn_model", feature_dim=4, hidden_dim=4
)
TASKS = {
    "frames": TASK,
    "timeline": TimelineWorkload(
        dataset="chickenpox", model="tm_gcn", task="node", snapshots=8, hidden_dim=8, window=3,
        seed=3,
    ),
    "stream": StreamWorkload(
        dataset="college-msg", model="graphsage", source="twin", scale=0.05, events=100, node_dim=4,
        edge_dim=0, hidden_dim=8, fanouts=(3,), batch=40,
    ),
}  # fmt: skip
CONTENDERS = {
    "frames": ("numpy_tgcn", "NumpyTrainer"),
    "timeline": ("numpy_others", "NumpyTmGcn"),
    "stream": ("numpy_others", "NumpySage"),
}
COMPARED = {
    "losses", "outputs", "gradients", "updates", "moments", "parameters after preparation", "times",
}  # fmt: skip


@pytest.fixture(scope="module")
def data():
    return load(TASK)


@pytest.fixture(scope="module")
def second_python(tmp_path_factory) -> Path:
    """Interpreter of a virtual environment that holds numpy and nothing else."""
    home = tmp_path_factory.mktemp("second")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    (packages,) = home.glob("lib/python*/site-packages")
    own = Path(numpy.__file__).parents[1]
    for name in ("numpy", "numpy.libs"):
        if (own / name).exists():
            (packages / name).symlink_to(own / name)
    return home / "bin/python"


@pytest.fixture
def opened(data):
    """Opens the stub that is broken in a named way; ends all that a test has opened."""
    trainers = []

    def open_stub(how: str, task=TASK, **fields) -> ForeignTrainer:
        fields = {"answer_s": 20.0, **fields}
        foreign = Foreign(sys.executable, how, SERVER.parent, server=STUB, **fields)
        trainers.append(ForeignTrainer("Stub", foreign, task, data if task is TASK else None))
        return trainers[-1]

    yield open_stub
    for trainer in trainers:
        trainer.close()


def system_of(foreign: Foreign, task=TASK) -> ForeignSystem:
    class Contender(ForeignSystem):
        name, title, kind = "contender", "Contender", "paper"
        trains = (type(task), "trains what a test says")

    Contender.foreign = foreign
    return Contender()


def raced(monkeypatch, foreign: Foreign, task):
    """Measurement of a process of a race, as a row is made of it."""
    system, known = system_of(foreign, task), race.get_system
    monkeypatch.setattr(race, "get_system", lambda n: system if n == system.name else known(n))
    return race.timed(system.name, task, RunContext("cpu", "smoke", 1, budget_s=0.02))


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def gone(pid: int) -> bool:
    """Return True once a process has ended, which the kernel may need a moment for."""
    end = time.monotonic() + 20
    while alive(pid) and time.monotonic() < end:
        time.sleep(0.01)
    return not alive(pid)


@pytest.mark.parametrize("kind", TASKS)
def test_it_races_and_passes_the_gate_in_an_environment_without_dgbench(
    kind, second_python, monkeypatch
) -> None:
    code = "import importlib.util as u; print(u.find_spec('dgbench'), u.find_spec('torch'))"
    asked = [second_python, "-I", "-c", code]
    done = subprocess.run(asked, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["None", "None"]
    task = TASKS[kind]
    found = raced(monkeypatch, Foreign(second_python, CONTENDERS[kind][0], PLUGIN), task)
    assert {check.of for check in found.checks} >= COMPARED
    assert all(check.passed for check in found.checks), [check.words for check in found.checks]
    observed = {one.metric: one for one in found.observations}
    if kind == "stream":  # batches of 40, 40 and 20; after the first step come the others and it
        assert observed["targets"].value == 3 * 100
    elif kind == "timeline":  # two layers, all entries and loops; the last snapshot is a target
        data = load_timeline(task)
        entries = sum(data.topology[t].nnz + data.num_nodes for t in range(len(data) - 1))
        assert observed["edges_aggregated"].value == 3 * 2 * entries
    else:
        assert len(observed["step_time"].samples) >= 3
        assert observed["spent_time"].dims == {"phase": "protocol"}
    assert found.data["dataset"] == task.dataset
    assert any(f"numpy {numpy.__version__}" in note for note in found.notes)


WRONG = {
    "losses": "def step(self, frame):\n        return 1.01 * super().step(frame)",
    "outputs": "def evaluate(self, frame):\n        return 2 * super().evaluate(frame)",
    "updates": "def step(self, frame):\n        return self._pass(frame)[0]",
    "outputs, too": "def evaluate(self, frame):\n        return super().evaluate(frame) * np.nan",
}


@pytest.mark.parametrize(
    ("of", "kind"),
    [*((of, "frames") for of in WRONG), ("losses", "timeline"), ("losses", "stream")],
)
def test_wrong_results_do_not_pass_the_gate(of, kind, second_python, tmp_path, monkeypatch) -> None:
    module, base = CONTENDERS[kind]
    (tmp_path / "wrong.py").write_text(
        f"import sys\nsys.path.append({str(PLUGIN)!r})\nimport numpy as np\n"
        f"from {module} import {base}\n\n\n"
        f"class Wrong({base}):\n    {WRONG[of]}\n\n\nopen_trainer = Wrong\n"
    )
    found = raced(monkeypatch, Foreign(second_python, "wrong", tmp_path), TASKS[kind])
    assert any(check.of == of.partition(",")[0] and not check.passed for check in found.checks)


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_results_that_nobody_wrote_are_nan(task, opened) -> None:
    trainer = opened("writes nothing", task)
    last = trainer.evaluate(trainer.num_frames - 1)
    assert len(last) == (60 if isinstance(task, StreamWorkload) else trainer.data.num_nodes)
    assert last.isnan().all()
    assert all(one.isnan().all() for one in trainer.state().values())
    assert all(one.isnan().all() for one in trainer.gradients(0).values())


BROKEN = {
    "crash": ["text", "binary", "huge", "empty", "list", "nested", "twice", "half", "killed",
              "exit", "words", "nothing", "no counters", "half a count", "error of its own"],
    "check": ["clock", "back in time", "count that falls", "count that goes"],
    "time": ["hang"],
    "oom": ["memory"],
}  # fmt: skip
EVERY = [(how, status, "frames") for status, names in BROKEN.items() for how in names]
EVERY += [("killed", "crash", "timeline"), ("count that falls", "check", "stream")]


@pytest.mark.parametrize(("how", "status", "kind"), EVERY)
def test_every_break_is_a_row_with_its_reason_and_leaves_nothing(how, status, kind, opened) -> None:
    trainer = opened(how, TASKS[kind], answer_s=0.5 if how == "hang" else 20.0)
    trainer.prepare()
    with pytest.raises(DgbenchError, match="Stub") as caught:
        trainer.step(0)
    assert explain(caught.value).status == status
    trainer.close()
    assert gone(trainer.process.pid)


def test_counts_and_cores_after_the_steps_are_caught(opened, monkeypatch) -> None:
    spent = iter((0.0, 1e6))  # seconds of more cores than are allowed
    for how in ("counts later", "fine"):
        trainer = opened(how)
        if how == "fine":
            monkeypatch.setattr(trainer.process, "cpu_seconds", lambda: next(spent))
        trainer.step(0)
        with pytest.raises(DgbenchError) as caught:
            trainer.report()
        assert explain(caught.value).status == "check"


def test_its_processor_time_and_memory_are_the_contenders(opened) -> None:
    touched.clear()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    trainer = opened("burn")
    trainer.step(0)
    trainer.report()
    touched.end_measurement()
    assert touched.record()["peak_rss_bytes"] > psutil.Process().memory_info().rss + (96 << 20)
    trainer.close()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime >= 0.3
    touched.clear()


def test_what_it_started_ends_with_it_and_it_with_its_driver(opened, data) -> None:
    trainer = opened("parent")
    (child,) = psutil.Process(trainer.process.pid).children()
    trainer.process.end()
    assert gone(trainer.process.pid)
    assert gone(child.pid)
    read, write = os.pipe()
    driver = os.fork()
    if not driver:
        foreign = Foreign(sys.executable, "fine", SERVER.parent, server=STUB)
        trainer = ForeignTrainer("Stub", foreign, TASK, data)
        os.write(write, str(trainer.process.pid).encode())
        os.kill(os.getpid(), 9)
    os.waitpid(driver, 0)
    assert gone(int(os.read(read, 100)))
    os.close(read)
    os.close(write)


def test_what_cannot_run_is_told_before(tmp_path, second_python, opened, data) -> None:
    known, stream = Foreign(sys.executable, "m"), TASKS["stream"]
    assert system_of(known, stream).unsupported(stream, "cpu") == []
    for foreign, of, task in (
        (Foreign("/nowhere/python", "m"), TASK, TASK), (Foreign((), "m"), TASK, TASK),
        (known, TASK, object()), (known, TASK, msgspec.structs.replace(TASK, task="link")),
        (known, stream, msgspec.structs.replace(stream, model="tgn")),
        (known, stream, msgspec.structs.replace(stream, dropout=0.1)),
    ):  # fmt: skip
        assert len(system_of(foreign, of).unsupported(task, "cpu")) == 1
    script = tmp_path / "python"
    script.write_text("no program\n")
    script.chmod(0o755)
    (tmp_path / "hollow.py").write_text("")
    lacking = Foreign(second_python, "nobody_has_it", tmp_path)
    for foreign, word in (
        (Foreign(script, "m"), str(script)), (lacking, "'nobody_has_it'"),
        (replace(lacking, module="hollow"), "'hollow'"),
        (replace(lacking, python=(second_python, "-S")), "'numpy'"),
    ):  # fmt: skip
        with pytest.raises(DgbenchError, match=word) as caught:
            ForeignTrainer("Stub", foreign, TASK, data)
        assert explain(caught.value).status == "not-supported"
    for how in ("version", "unversioned", "turned", "unknown parameter"):
        with pytest.raises(DgbenchError):
            opened(how)
