"""Settings for all tests, what is said at the end of a run, and the check of the working tree."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import skips
import tree_check
from hypothesis import settings
from tqdm import tqdm
from warm import await_interpreter, warm_interpreter

# A job in the background of a shell is started with Ctrl-C ignored, and so are its processes.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No test looks for a network; those of downloads have a server of their own and unset this.
os.environ["DGBENCH_OFFLINE"] = "1"

# torch's tracing shows a progress bar. The thread that watches over it would live on, and ranks
# could not be forks of this process any more, see dgbench.runtime.ranks.process.may_fork.
tqdm.monitor_interval = 0

# Property tests draw the same examples everywhere, so a change fails for what it changed and a
# newcomer's run says what ours says. `nox -s search` draws new ones (scripts/search_examples.py).
# No example fails for being slow: a busy machine would decide.
settings.register_profile("fixed", derandomize=True, database=None, print_blob=True, deadline=None)
settings.register_profile("search", database=None, print_blob=True, deadline=None)
settings.load_profile(os.environ.get("DGBENCH_EXAMPLES", "fixed"))

ROOT = Path(__file__).resolve().parents[1]
BEFORE = pytest.StashKey[set[str]]()
LEFT = pytest.StashKey[list[str]]()
WARM = "DGBENCH_WARM_PYTHON"
"""Environment variable of workers: what stands for `python` in all of them."""
SHARED = ExitStack()
"""Interpreter of the workers, while they run."""


@pytest.fixture(scope="session")
def warm_python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Words that stand for `python` where a test is not about how a process starts, see warm.

    Workers of xdist share the interpreter of their controller.
    """
    shared = os.environ.get(WARM)
    folder = None if shared else tmp_path_factory.mktemp("warm")
    with warm_interpreter(folder) if folder else nullcontext([str(shared)]) as words:
        await_interpreter(words)
        yield words


@pytest.fixture
def warm_starts(warm_python: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork servers and sides of races are forks of the warm interpreter in this test."""
    monkeypatch.setattr(sys, "executable", warm_python[0])


@pytest.fixture(scope="module")
def warm_starts_of_module(warm_python: list[str]) -> Iterator[None]:
    """They are in fixtures and tests of this module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", warm_python[0])
        yield


if FUSED := os.environ.get("DGBENCH_FUSED", ""):
    if FUSED not in ("0", "1"):
        raise pytest.UsageError(f"DGBENCH_FUSED is '{FUSED}', allowed are 0 and 1")
    from fused import MultiplyAdd

    @pytest.fixture(autouse=True)
    def multiply_add(request: pytest.FixtureRequest) -> Iterator[None]:
        """Torch fuses multiply-add, or does not."""
        alone = request.node.get_closest_marker("machines_arithmetic")
        with nullcontext() if alone else MultiplyAdd(fused=FUSED == "1"):
            yield


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Keep modules and collected tests out of every later garbage collection.

    They live to the end of the run, and looking through them takes 0.4 s each time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)  # figures and compilers leave much that is small
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Keep what a module leaves, as imports and caches, out of every later collection, too.

    Every timed cell begins with one, and it took 1.5 s late in a run.
    """
    try:
        return (yield)
    finally:
        if nextitem is None or nextitem.path != item.path:
            gc.collect()
            gc.freeze()


@pytest.hookimpl(trylast=True)  # after -m and -k
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put slow tests first; without a CUDA device, keep one skipped test a module for all."""
    from dgbench.kernels_cuda import build_info

    cuda: dict[str, Any] = build_info.build_info()["cuda"]
    if not cuda["usable"]:
        reason = f"no CUDA device for the operators: {cuda['reason']}"
        items[:], without = skips.keep_one_a_module(items, reason)
        config.hook.pytest_deselected(items=without)
    # A worker of xdist that ends with a long test would leave the other one without work.
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_sessionstart(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):  # once, not in every worker of xdist
        session.config.stash[BEFORE] = tree_check.left_entries(ROOT)
        if session.config.getoption("tx", None):
            folder = Path(SHARED.enter_context(TemporaryDirectory(prefix="dgbench-warm-")))
            os.environ[WARM] = SHARED.enter_context(warm_interpreter(folder))[0]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run that left files in the working tree."""
    SHARED.close()
    if (before := session.config.stash.get(BEFORE, None)) is not None:
        left = session.config.stash[LEFT] = sorted(tree_check.left_entries(ROOT) - before)
        if left and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if left := terminalreporter.config.stash.get(LEFT, []):
        terminalreporter.section("the tests left files in the working tree", sep="-", red=True)
        for path in left:
            terminalreporter.line(path)
