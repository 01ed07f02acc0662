"""Cells of the harness in which a rank of ESDG dies, hangs or takes too much memory."""

from __future__ import annotations

import psutil
import pytest
from esdg_fault_papers import BAD, lookup, make_paper
from esdg_rows import number

from dgbench.harness.plan import Plan
from dgbench.harness.runner import ForkServer, Listener, run_plan
from dgbench.harness.runner.child import explain
from dgbench.harness.store import Store
from dgbench.runtime.ranks import TRAINING
from dgbench.runtime.ranks.errors import rank_error
from dgbench.systems.base import Cell

LIMIT_S = 30.0
EXPECTED = {
    "well": ("ok", ""),
    "dies": ("crash", "was killed by SIGKILL"),
    "hangs": ("time", "kept others waiting for more than 3 s"),
    "eats": ("oom", "its limit is 400 MiB"),
    "raises": ("crash", "raised ValueError: a mistake in a loss"),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory, warm_starts_of_module):
    """One fork server for all runs; ranks come and go below the processes of cells."""
    log = tmp_path_factory.mktemp("server") / "log"
    modules = ("torch", *TRAINING)  # or each rank of each cell imports them
    with ForkServer(lookup, ["faults"], threads=1, log=log, modules=modules) as running:
        yield running


def run(root, server, *cells):
    store = Store.create(root)
    plan = Plan.build([make_paper(*cells)], None, "quick")
    run_plan(
        plan,
        store,
        listener=Listener(),
        lookup=lookup,
        limits=False,
        threads=1,
        server=server,
    )
    store.close()
    return Store.open(store.path)


def cell(memory_bytes=None, **params) -> Cell:
    return Cell(
        paper="faults",
        experiment="faults",
        params=params,
        group=str(params),
        timeout_s=LIMIT_S,
        memory_bytes=memory_bytes,
    )


@pytest.fixture(scope="module")
def faults(tmp_path_factory, server):
    """One run with a cell for each fault."""
    root = tmp_path_factory.mktemp("faults")
    folders = {how: root / how for how in EXPECTED}
    for folder in folders.values():
        folder.mkdir()
    store = run(root, server, *(cell(how=how, pids=str(path)) for how, path in folders.items()))
    return {row.params["how"]: row for row in store.written()}, folders


@pytest.mark.parametrize("how", EXPECTED)
def test_a_rank_that_fails_ends_its_cell_by_name(faults, how):
    rows, folders = faults
    row = rows[how]
    status, reason = EXPECTED[how]
    assert row.status == status, row.reason
    assert reason in row.reason
    assert row.seconds < LIMIT_S
    if how == "well":
        assert number(row, "epochs") == 3
    else:
        assert f"rank {BAD} of 3" in row.reason
    pids = [int(file.read_text()) for file in folders[how].iterdir()]
    assert len(pids) == 3
    assert not any(alive(pid) for pid in pids)


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_what_does_not_fit_at_once_fits_in_blocks(tmp_path, server):
    """The limit is held by the harness, over the whole process."""
    free = run(tmp_path / "free", server, cell(blocks=12)).written()[0]
    assert free.status == "ok", free.reason
    saved = number(free, "memory")
    assert saved > 64 << 20
    limit = free.probes["peak_rss_bytes"] + saved // 2
    held = run(tmp_path / "held", server, cell(limit, blocks=1), cell(limit, blocks=12)).written()
    assert [row.status for row in held] == ["oom", "ok"], [row.reason for row in held]
    assert number(held[1], "loss") == pytest.approx(number(free, "loss"), rel=1e-6)


@pytest.mark.parametrize(
    ("kind", "status"),
    [("hung", "time"), ("memory", "oom"), ("killed", "crash"), ("exited", "crash")],
)
def test_errors_of_ranks_have_a_status(wording, kind, status, capsys):
    found = explain(rank_error(3, 8, kind, "did this", trace="where it stood", hint="try that"))
    assert found.status == status
    wording(found.reason)
    assert "where it stood" in capsys.readouterr().err
