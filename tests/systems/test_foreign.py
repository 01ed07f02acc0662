"""Contenders in a process of another Python: raced, gated and caught as all others are."""

from __future__ import annotations

import ast
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
import torch

from dgbench.harness.runner.child import explain
from dgbench.lab.experiment import RunContext
from dgbench.runtime import touched
from dgbench.runtime.errors import DgbenchError
from dgbench.systems.base import Workload, race
from dgbench.systems.base.data import load
from dgbench.systems.base.foreign import SERVER, Foreign, ForeignSystem, ForeignTrainer
from dgbench.systems.base.stream import StreamWorkload, load_stream
from dgbench.systems.base.timeline import TimelineTask, TimelineWorkload, load_timeline

PLUGIN = Path(__file__).parents[1] / "plugin"
STUB = Path(__file__).with_name("foreign_stub.py")
TASK = Workload(
    dataset="chickenpox", snapshots=9, frame=4, model="tgcn_model", feature_dim=4, hidden_dim=4
)
OTHERS = {
    "timeline": TimelineWorkload(
        dataset="chickenpox", model="tm_gcn", task="node", snapshots=8, hidden_dim=8, window=3,
        seed=3,
    ),
    "stream": StreamWorkload(
        dataset="college-msg", model="graphsage", source="twin", scale=0.05, events=100, node_dim=4,
        edge_dim=0, hidden_dim=8, fanouts=(3,), batch=40,
    ),
}  # fmt: skip


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


def raced(monkeypatch, system: ForeignSystem, task=TASK, **context):
    """Measurement of a process of a race, as a row is made of it."""
    known = race.get_system
    monkeypatch.setattr(race, "get_system", lambda n: system if n == system.name else known(n))
    return race.timed(system.name, task, RunContext("cpu", "smoke", 1, budget_s=0.02, **context))


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


# --- it takes part --------------------------------------------------------------------------


def test_it_races_and_passes_the_gate_in_an_environment_without_dgbench(
    second_python, monkeypatch
) -> None:
    code = "import importlib.util as u; print(u.find_spec('dgbench'), u.find_spec('torch'))"
    done = subprocess.run(
        [second_python, "-I", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["None", "None"]
    system = system_of(Foreign(second_python, "numpy_tgcn", PLUGIN))
    found = raced(monkeypatch, system)
    assert {check.of for check in found.checks} >= COMPARED
    assert all(check.passed for check in found.checks), [check.words for check in found.checks]
    observed = {one.metric: one for one in found.observations}
    assert len(observed["step_time"].samples) >= 3
    assert observed["spent_time"].dims == {"phase": "protocol"}
    assert found.data["dataset"] == "chickenpox"
    assert any(f"numpy {numpy.__version__}" in note for note in found.notes)


@pytest.mark.parametrize("kind", OTHERS)
def test_streams_and_timelines_are_raced_and_gated_likewise(
    kind, second_python, monkeypatch
) -> None:
    task = OTHERS[kind]
    system = system_of(Foreign(second_python, "numpy_others", PLUGIN), task)
    found = raced(monkeypatch, system, task)
    assert {check.of for check in found.checks} >= COMPARED
    assert all(check.passed for check in found.checks), [check.words for check in found.checks]
    observed = {one.metric: one.value for one in found.observations}
    data = load_timeline(task) if kind == "timeline" else load_stream(task)
    if kind == "stream":  # batches of 40, 40 and 20; after the first step come the others and it
        assert observed["targets"] == 3 * 100
    else:  # two layers, all entries and loops, for the last snapshot is only a target
        entries = sum(data.topology[t].nnz + data.num_nodes for t in range(len(data) - 1))
        assert observed["edges_aggregated"] == 3 * 2 * entries
    assert found.data["dataset"] == task.dataset


@pytest.mark.parametrize("task", ["link", "class"])
def test_pairs_and_classes_of_a_timeline_are_those_of_its_task(
    task, second_python, tmp_path
) -> None:
    """The contender's loss is a checksum of what it was given."""
    asked = msgspec.structs.replace(OTHERS["timeline"], task=task, theta=0.5, classes=3)
    (tmp_path / "sums.py").write_text(
        "import numpy as np\n\n\nclass open_trainer:\n"
        "    def __init__(self, task):\n        self.task = task\n\n"
        "    def state(self):\n        return self.task.parameters\n\n"
        "    def step(self, frame):\n        task, total = self.task, 0.0\n"
        "        for t in task.frame(frame):\n"
        "            if task.workload['task'] == 'link':\n"
        "                pairs, labels = task.pairs(t)\n"
        "                total += (t + 1) * (pairs[0] * labels + 7 * pairs[1]).sum()\n"
        "            else:\n"
        "                total += (t + 1) * task.targets[t].astype(np.int64).sum()\n"
        "        return total\n"
    )
    data = load_timeline(asked)
    trainer = ForeignTrainer("Contender", Foreign(second_python, "sums", tmp_path), asked, data)
    own = TimelineTask(data, asked)
    if task == "link":
        each = [(s * label + 7 * d).sum() for (s, d), label in map(own.pairs, range(own.steps))]
    else:
        each = [own.target(t).sum() for t in range(own.steps)]
    wanted = sum((t + 1) * int(one) for t, one in enumerate(each))
    assert wanted > 0
    assert trainer.step(0) == wanted
    trainer.close()


def test_what_it_trains_is_what_it_was_given(second_python, data) -> None:
    """Two contenders on equal data: parameters before and after equal steps, exact counters."""
    foreign = Foreign(second_python, "numpy_tgcn", PLUGIN)
    first, second = (ForeignTrainer("Contender", foreign, TASK, data) for _ in range(2))
    mine, theirs = first.state(), race.oracle_of(TASK, RunContext("cpu", "smoke", 1)).trainer
    for name, value in theirs.state().items():
        assert torch.equal(mine[name], value.float())
    assert [first.step(i) for i in (0, 1)] == [second.step(i) for i in (0, 1)]
    assert all(torch.equal(one, second.state()[name]) for name, one in first.state().items())
    edges = sum(data.topology[t].nnz + data.num_nodes for t in range(5))
    assert first.meter.counters["edges_aggregated"] == edges
    before = first.process.messages, first.process.bytes
    first.step(2)
    assert first.process.messages - before[0] == 2
    assert first.process.bytes - before[1] < 256
    first.close()
    second.close()


def test_server_needs_the_standard_library_and_numpy_and_an_old_python() -> None:
    tree = ast.parse(SERVER.read_text(), feature_version=(3, 6))
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            names.add(node.module)
    assert names - sys.stdlib_module_names == {"numpy"}


# --- it is wrong, and the gate says so ------------------------------------------------------

WRONG = {
    "loss": ("losses", "def step(self, frame):\n        return 1.01 * super().step(frame)"),
    "output": ("outputs", "def evaluate(self, frame):\n        return 2 * super().evaluate(frame)"),
    "idle": ("updates", "def step(self, frame):\n        return self._pass(frame)[0]"),
    "state": (
        "outputs",
        "def state(self):\n        return {k: 1.1 * v for k, v in self.values.items()}",
    ),
    "nan": (
        "outputs",
        "def evaluate(self, frame):\n        return super().evaluate(frame) * np.nan",
    ),
}


CONTENDERS = {
    "frames": ("numpy_tgcn", "NumpyTrainer"),
    "timeline": ("numpy_others", "NumpyTmGcn"),
    "stream": ("numpy_others", "NumpySage"),
}


@pytest.mark.parametrize("kind", CONTENDERS)
@pytest.mark.parametrize("how", WRONG)
def test_wrong_results_do_not_pass_the_gate(
    how, kind, second_python, tmp_path, monkeypatch
) -> None:
    of, method = WRONG[how]
    module, base = CONTENDERS[kind]
    (tmp_path / "wrong.py").write_text(
        f"import sys\nsys.path.append({str(PLUGIN)!r})\nimport numpy as np\n"
        f"from {module} import {base}\n\n\n"
        f"class Wrong({base}):\n    {method}\n\n\nopen_trainer = Wrong\n"
    )
    task = OTHERS.get(kind, TASK)
    found = raced(monkeypatch, system_of(Foreign(second_python, "wrong", tmp_path), task), task)
    assert any(check.of == of and not check.passed for check in found.checks)


def test_a_loss_that_is_no_number_is_a_check_row(second_python, tmp_path, monkeypatch) -> None:
    (tmp_path / "wrong.py").write_text(
        f"import sys\nsys.path.append({str(PLUGIN)!r})\nfrom numpy_tgcn import NumpyTrainer\n"
        "class open_trainer(NumpyTrainer):\n    def step(self, frame):\n        return 'nan'\n"
    )
    with pytest.raises(DgbenchError) as caught:
        raced(monkeypatch, system_of(Foreign(second_python, "wrong", tmp_path)))
    told = explain(caught.value)
    assert told.status == "check"
    assert "is nan" in told.reason


@pytest.mark.parametrize("task", [TASK, *OTHERS.values()])
def test_results_that_nobody_wrote_are_nan(task, opened) -> None:
    trainer = opened("writes nothing", task)
    last = trainer.evaluate(trainer.num_frames - 1)
    assert len(last) == (60 if isinstance(task, StreamWorkload) else trainer.data.num_nodes)
    assert last.isnan().all()
    assert all(one.isnan().all() for one in trainer.state().values())
    assert all(one.isnan().all() for one in trainer.gradients(0).values())


# --- it breaks, and its row says how --------------------------------------------------------

BROKEN = {
    "text": ("crash", "what is no JSON"),
    "binary": ("crash", "what is no JSON"),
    "huge": ("crash", "a message of 1,073,741,824 bytes"),
    "empty": ("crash", "a message of 0 bytes"),
    "list": ("crash", "a list instead of an object"),
    "nested": ("crash", "nested without end"),
    "twice": ("crash", "more than one message"),
    "half": ("crash", "ended with code 0 before it answered 'step'"),
    "killed": ("crash", "killed by SIGKILL before it answered 'step'"),
    "exit": ("crash", "ended with code 3 before it answered 'step'"),
    "hang": ("time", "gave no answer to 'step' within 0.5 s"),
    "words": ("crash", "its 'loss' is 'low', a number is needed"),
    "nothing": ("crash", "its 'loss' is None, a number is needed"),
    "clock": ("check", "says that a step took 1e+06 s"),
    "back in time": ("check", "says that a step took -1 s"),
    "no counters": ("crash", "its 'counters' is None"),
    "half a count": ("crash", "its counter 'edges' is 1.5"),
    "count that falls": ("check", "counter 'edges' that fell from 3 to 2"),
    "count that goes": ("check", "counter 'edges' that fell from 3 to 0"),
    "memory": ("oom", "no more"),
    "error of its own": ("crash", "its 'error' is 'no', an object is needed"),
}


SOME = ("killed", "hang", "half", "clock", "count that falls")


@pytest.mark.parametrize(
    ("how", "kind"),
    [*((how, "frames") for how in BROKEN), *((how, kind) for how in SOME for kind in OTHERS)],
)
def test_every_break_is_a_row_with_its_reason_and_leaves_nothing(how, kind, opened) -> None:
    trainer = opened(how, OTHERS.get(kind, TASK), answer_s=0.5 if how == "hang" else 20.0)
    trainer.prepare()
    with pytest.raises(DgbenchError) as caught:
        trainer.step(0)
    told = explain(caught.value)
    status, words = BROKEN[how]
    assert told.status == status
    assert words in told.reason
    assert "Stub" in told.reason
    trainer.close()
    assert gone(trainer.process.pid)


def test_what_it_raises_when_it_closes_is_told(opened) -> None:
    trainer = opened("bad end")
    with pytest.raises(DgbenchError, match="raised in 'close': OSError: disk full"):
        trainer.close()
    assert gone(trainer.process.pid)


def test_counts_after_the_steps_are_caught(opened) -> None:
    trainer = opened("counts later")
    trainer.step(0)
    with pytest.raises(DgbenchError, match="and after them") as caught:
        trainer.report()
    assert explain(caught.value).status == "check"


def test_more_cores_than_allowed_are_caught(opened, monkeypatch) -> None:
    trainer = opened("fine")
    spent = iter((0.0, 1e6))
    monkeypatch.setattr(trainer.process, "cpu_seconds", lambda: next(spent))
    trainer.step(0)
    with pytest.raises(DgbenchError, match="cores in its steps") as caught:
        trainer.report()
    assert explain(caught.value).status == "check"


def test_its_processor_time_memory_and_device_are_the_contenders(opened) -> None:
    touched.clear()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    trainer = opened("burn")
    trainer.step(0)
    trainer.report()
    touched.end_measurement()
    own = psutil.Process().memory_info().rss
    assert touched.record()["peak_rss_bytes"] > own + (96 << 20)
    trainer.close()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime >= 0.3
    touched.clear()
    opened("device").report()
    assert touched.record()["cuda"] == {"allocations": 2, "peak_bytes": 7}
    touched.clear()


def test_what_it_started_ends_with_it(opened) -> None:
    trainer = opened("parent")
    (child,) = psutil.Process(trainer.process.pid).children()
    trainer.process.end()
    assert gone(trainer.process.pid)
    assert gone(child.pid)


def test_it_ends_with_its_driver(data) -> None:
    """However the driver ends: here it kills itself between two calls."""
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


def test_a_trainer_that_is_forgotten_takes_its_process_along(data) -> None:
    foreign = Foreign(sys.executable, "fine", SERVER.parent, server=STUB)
    trainer = ForeignTrainer("Stub", foreign, TASK, data)
    pid = trainer.process.pid
    del trainer
    assert gone(pid)


# --- bad input ------------------------------------------------------------------------------


def test_an_unknown_interpreter_is_a_reason_not_to_run(wording) -> None:
    (reason,) = system_of(Foreign("/nowhere/python", "m")).unsupported(TASK, "cpu")
    wording(reason)
    (reason,) = system_of(Foreign((), "m")).unsupported(TASK, "cpu")
    wording(reason)


def test_other_tasks_are_a_reason_not_to_run(wording) -> None:
    task = msgspec.structs.replace(TASK, task="link")
    (reason,) = system_of(Foreign(sys.executable, "m")).unsupported(task, "cpu")
    wording(reason)
    (reason,) = system_of(Foreign(sys.executable, "m")).unsupported(object(), "cpu")
    wording(reason)
    stream = OTHERS["stream"]
    system = system_of(Foreign(sys.executable, "m"), stream)
    assert system.unsupported(stream, "cpu") == []
    for fields, words in (
        ({"model": "tgn"}, "keeps memories"),
        ({"sampling": "uniform"}, "draw nothing"),
        ({"dropout": 0.1}, "draw nothing"),
        ({"batch": 40, "chunks": 2}, "draw nothing"),
    ):
        (reason,) = system.unsupported(msgspec.structs.replace(stream, **fields), "cpu")
        assert words in reason


def test_a_workload_of_no_kind_is_refused() -> None:
    with pytest.raises(DgbenchError, match="workload is a object, allowed: Workload, Timeline"):
        ForeignTrainer("Stub", Foreign(sys.executable, "m"), object(), None)


def refused(trainer) -> str:
    with pytest.raises(DgbenchError) as caught:
        trainer()
    told = explain(caught.value)
    assert told.status == "not-supported"
    return told.reason


def test_an_interpreter_that_is_none(tmp_path, data) -> None:
    script = tmp_path / "python"
    script.write_text("no program\n")
    script.chmod(0o755)
    foreign = Foreign(script, "m")
    told = refused(lambda: ForeignTrainer("Stub", foreign, TASK, data))
    assert str(script) in told


def test_another_version_of_the_protocol(opened, wording) -> None:
    wording(refused(lambda: opened("version")))
    wording(refused(lambda: opened("unversioned")))


def test_a_module_or_numpy_that_the_environment_has_not(tmp_path, second_python, data) -> None:
    (tmp_path / "hollow.py").write_text("")
    known = Foreign(second_python, "nobody_has_it", tmp_path)
    for foreign, words in (
        (known, "cannot import its module 'nobody_has_it': No module named 'nobody_has_it'"),
        (replace(known, module="hollow"), "'hollow' has no function open_trainer(task)"),
        (replace(known, python=(second_python, "-S")), "No module named 'numpy'"),
    ):
        reason = refused(lambda foreign=foreign: ForeignTrainer("Stub", foreign, TASK, data))
        assert words in reason


def test_parameters_of_another_shape_or_name(opened) -> None:
    for how, words in (
        ("turned", "its parameter 'linear_z.weight' has the shape [8, 4]"),
        ("unknown parameter", "its parameter 'bias' has the shape [1], that of the workload's"),
    ):
        with pytest.raises(DgbenchError) as caught:
            opened(how)
        assert words in str(caught.value)
