"""Runs on a cluster: groups stay whole, jobs get lost, killed and requeued, shards are refused."""

from __future__ import annotations

import itertools
import shutil
import signal
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path

import fake_papers
import msgspec
import pytest
from fake_papers import cell, make_paper
from slurm_standin import Nodes, after, run_on, slurm

from dgbench.harness.cli import clustered
from dgbench.harness.cluster import ClusterFile, Jobs, Submission, collect, read_cluster, shard
from dgbench.harness.cluster import submit as submit_jobs
from dgbench.harness.machine.provenance import provenance
from dgbench.harness.plan import Plan
from dgbench.harness.runner import Listener, run_plan
from dgbench.harness.runner.nodes import node_label
from dgbench.harness.runner.outcome import blank_row
from dgbench.harness.store import Store
from dgbench.harness.store.files import to_line
from dgbench.harness.store.row import encode
from dgbench.lab.table import Observation
from dgbench.runtime.errors import DgbenchError, InvalidInputError, StoreError

pytest.importorskip("submitit", reason="the cluster extra is not installed")

# --- the cluster file -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('executor = "slurm"\npartion = "a"', "partition"),
        ('executor = "slurm"\ngpus = "two"', "gpus"),
        ('executor = "pbs"', "executor"),
        ('executor = "local"\npartition = "a"', "partition"),
        ('executor = "slurm"\ntime = 1\nwarning = 60', "warning"),
        ("gpus = 1", "executor"),
    ],
)
def test_a_cluster_file_is_refused_by_the_key_that_is_wrong(tmp_path, text, key):
    path = tmp_path / "cluster.toml"
    path.write_text(text)
    with pytest.raises(DgbenchError) as caught:
        read_cluster(path)
    assert key in f"{caught.value} {caught.value.hint}"


# --- shards that run --------------------------------------------------------------------------

GROUPS = ("g0", "g1", "g2")


def new_plan(groups=GROUPS) -> Plan:
    cells = [cell("ok", repeats=2, group=g, system=s) for g in groups for s in ("ours", "theirs")]
    return Plan.build([make_paper(*cells)], None, "smoke")


@pytest.fixture
def nodes(tmp_path, monkeypatch, server):
    """A cluster whose jobs run in forks of this process, on a fork server that they share."""
    with slurm(tmp_path) as found:

        def run(plan, store, **settings):
            count, listener = itertools.count(1), Listener()
            listener.on_row = lambda row: found.fault(next(count))
            settings |= {"listener": listener, "server": server, "limits": False}
            return run_plan(plan, store, threads=1, watch=False, **settings)

        monkeypatch.setattr(shard, "run_plan", run)
        monkeypatch.setattr("dgbench.harness.cluster.jobs.SILENT", ("UNKNOWN",))
        yield found


def submitted(tmp_path, nodes, plan, **more) -> tuple[Submission, Jobs]:
    cluster = ClusterFile(
        executor="slurm", folder=str(tmp_path / "submissions"), gpus=1, partition="fast"
    )
    submission = Submission.create(cluster, plan, {"papers": ["fake"]}, **more)
    nodes.jobs = submission.path / "jobs"
    return submission, submit_jobs(submission, fake_papers.lookup)


def waited(jobs: Jobs, nodes: Nodes) -> dict[int, str]:
    """Outcome of all jobs, on a clock by which each look takes five minutes."""
    ticks = iter(range(0, 10**6, 300))
    return jobs.wait(sleep=nodes.step, clock=lambda: next(ticks))


def processes(rows) -> set[tuple]:
    return {(r.cell_hash, r.round, r.instrumented) for r in rows if r.paper != "-"}


def planned(plan: Plan) -> set[tuple]:
    return {(plan.cells[s.index].hash, s.round, s.instrumented) for s in plan.steps}


def test_what_jobs_lose_becomes_rows_that_say_why_and_runs_again(tmp_path, nodes):
    nodes.faults = {0: [None], 1: [after(3, signal.SIGKILL)]}
    plan = new_plan()
    submission, jobs = submitted(tmp_path, nodes, plan)
    lost = waited(jobs, nodes)
    assert set(lost) == {0, 1}
    assert "no news" in lost[0]
    assert "NODE_FAIL" in lost[1]
    assert (nodes.folder / "cancelled").read_text().endswith("_0\n")
    path, summary = collect(submission, lost, out=tmp_path / "runs")
    rows = Store.open(path).written()
    # Nodes have names that say nothing of them, and groups stay whole.
    (node,) = {r.node for r in rows if r.group == "g2"}
    assert node == node_label("host0", submission.info.salt)
    text = "".join(p.read_text() for p in path.glob("*.json*"))
    assert submission.info.salt not in text
    assert "host0" not in text
    with pytest.raises(InvalidInputError):
        collect(Submission.open(submission.path), {}, out=tmp_path / "runs")
    by_group = {g: [r for r in rows if r.group == g] for g in GROUPS}
    assert [r.reason for r in by_group["g0"]] == [lost[0]] * 2
    assert [r.ok for r in by_group["g1"]] == [True, True, True, False]
    assert by_group["g1"][3].reason == lost[1]
    assert [r.ok for r in by_group["g2"]] == [True] * 4
    assert {r.status for r in rows if not r.ok} == {"crash"}
    assert (summary.cells_ok, summary.cells_failed) == (3, 3)
    assert Store.open(path).info["note"].startswith(f"2 of {len(GROUPS)}")
    # The same run goes on, whole groups of it.
    left = clustered._groups_left(plan, path, "failed")
    assert left == [("fake", "behave", "g0"), ("fake", "behave", "g1")]
    nodes.attempts.clear()
    again, jobs = submitted(tmp_path, nodes, plan, into=path, groups=left)
    assert waited(jobs, nodes) == {}
    same, summary = collect(again, {})
    rows = Store.open(same).written()
    assert same.samefile(path)
    assert summary.cells_ok == 6
    assert all(r.ok for r in rows)
    assert planned(plan) == processes(rows)


def test_a_job_that_is_requeued_goes_on_and_no_round_is_parted(tmp_path, nodes):
    """Preempted in round 2 and sent to another node, it begins that round anew."""
    nodes.faults = {0: [after(3, signal.SIGUSR2)], 1: [after(3, signal.SIGTERM), run_on]}
    nodes.host = lambda element, attempt: f"host{element}{attempt}"
    submission, jobs = submitted(tmp_path, nodes, new_plan(["g0", "g1"]))
    # A job that ends by SIGTERM has no result: the batch system that sent it starts it again.
    state, step = nodes.folder / "jobs", nodes.step

    def requeue(seconds):
        step(seconds)
        for path in state.glob("*_1"):
            if path.read_text().strip() == "FAILED" and nodes.attempts[1] == 1:
                path.write_text("REQUEUED")

    nodes.step = requeue
    assert waited(jobs, nodes) == {}
    path, _ = collect(submission, {}, out=tmp_path / "runs")
    store = Store.open(path)
    rows = store.written()
    assert planned(submission.plan) == processes(rows)
    assert {(r.round, r.node) for r in rows if r.group == "g0"} == {
        (1, node_label("host01", submission.info.salt)),
        (2, node_label("host02", submission.info.salt)),
    }
    assert len(store.written(latest=False)) == len(rows) + 2  # one begun round of each


# --- shards that are refused ------------------------------------------------------------------

SECOND = timedelta(seconds=1)


FACTS = cache(lambda: msgspec.json.encode(provenance({})))


def facts_of(model: str = "x", **code) -> dict:
    found = msgspec.json.decode(FACTS())
    found["machine"]["cpu"]["model"] = model
    found["code"] |= code
    return found


def stamp(when: datetime) -> str:
    return when.isoformat(timespec="milliseconds")


class Written:
    """A submission whose shards were written by hand, as runs on two nodes would be."""

    def __init__(self, tmp_path: Path) -> None:
        self.out = tmp_path / "runs"
        cluster = ClusterFile(executor="slurm", folder=str(tmp_path / "submissions"))
        self.submission = Submission.create(cluster, new_plan(), {"papers": ["fake"]})
        self.facts = facts_of()
        for number in range(len(GROUPS)):
            self.write(number)

    @property
    def now(self) -> datetime:
        return self.submission.submitted + 60 * SECOND

    def write(self, number: int, plan: Plan | None = None) -> None:
        plan = plan or self.submission.plan_of(number)
        with Store.create(self.submission.shard_folder(number), {}, plan) as store:
            key = store.add_provenance(self.facts)
            node = f"node-{number % 2}"
            at = self.submission.submitted + 2 * SECOND
            for step in plan.steps:
                one = plan.cells[step.index]
                more = {"provenance": key, "node": node}
                row = blank_row(plan, store, one.cell, one.hash, step.round, **more)
                row.started, row.seconds = stamp(at), 1.0
                row.observed = [Observation(metric="step_time", value=1.0, samples=[1.0])]
                store.append(row)
                at += 2 * SECOND
            store.update(
                state="done", preset=plan.preset, device=plan.device, seed=1,
                started=stamp(self.submission.submitted + SECOND), ended=stamp(at + SECOND),
            )  # fmt: skip

    def store(self, number: int, **more) -> Store:
        return Store.open(self.submission.shard_run(number), **more)

    def rewrite(self, number: int, change) -> None:
        """Rows of a shard, changed in place: `change` takes and returns the list."""
        store = self.store(number)
        rows = change(store.written(latest=False))
        store.rows_path.write_bytes(b"".join(to_line(encode(row)) for row in rows))

    def update(self, number: int, **info) -> None:
        with self.store(number, writable=True) as store:
            store.update(**info)

    def collect(self):
        return collect(Submission.open(self.submission.path), {}, out=self.out, now=self.now)


def set_of(name, value):
    def change(rows):
        setattr(rows[-1], name, value)
        return rows

    return lambda written: written.rewrite(1, change)


def of_other_facts(model="x", rows=slice(None), **code):
    """Rows that another machine or another commit wrote."""

    def damage(written):
        with written.store(1, writable=True) as store:
            key = store.add_provenance(facts_of(model, **code))

        def change(all_rows):
            for row in all_rows[rows]:
                row.provenance = key
            return all_rows

        written.rewrite(1, change)

    return damage


def replan(**changes):
    def damage(written):
        shutil.rmtree(written.submission.shard_folder(1))
        written.write(1, msgspec.structs.replace(written.submission.plan_of(1), **changes))

    return damage


def at(seconds):
    return lambda written: stamp(written.submission.submitted + seconds * SECOND)


DAMAGE = {
    "commit": of_other_facts(commit="0" * 40),
    "seed": lambda w: w.update(1, seed=7),
    "plan preset": replan(budget_s=9.0),
    "row twice": lambda w: w.rewrite(1, lambda rows: [*rows, rows[0]]),
    "row of another": set_of("cell_hash", "0" * 16),
    "row's params": set_of("params", {"how": "ok"}),
    "after collection": lambda w: w.update(1, ended=at(99)(w)),
    "no node": set_of("node", ""),
    "other make": of_other_facts("y", slice(2, None)),
    "round on two": set_of("node", "node-9"),
    "ended before": lambda w: w.update(1, ended=at(-9)(w)),
    "before submission": lambda w: w.update(1, started=at(-9)(w)),
    "not whole": lambda w: w.update(1, state="partial"),
    "no run": lambda w: shutil.rmtree(w.submission.shard_folder(1)),
    "stranger": lambda w: shutil.copytree(
        w.submission.shard_folder(1), w.submission.shard_folder(1).with_name("0009")
    ),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_shard_that_does_not_match_is_refused_and_nothing_is_merged(tmp_path, name):
    written = Written(tmp_path)
    DAMAGE[name](written)
    with pytest.raises(StoreError):
        written.collect()
    assert not written.out.exists()
    assert not Submission.open(written.submission.path).info.collected
