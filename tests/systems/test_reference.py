"""The reference on frames, its compiled form, and predictors of snapshots that train nothing."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from tiny_data import TinySequence, csr_of, serve, tiny_sequence, tiny_workload

from dgbench.runtime.errors import InvalidInputError, UnknownKeyError, UnsupportedError
from dgbench.systems.base import RunContext, get_system
from dgbench.systems.base.race import relative, timed
from dgbench.systems.base.snapshot_baselines import SNAPSHOT_BASELINES, regression_errors
from dgbench.systems.base.training import MAX_PAIRS, FrameTask
from dgbench.systems.reference import ReferenceSystem, compiled

MODELS = ("tgcn_model", "evolvegcn", "mpnn_lstm")


def dense_a_hat(csr, norm: str) -> torch.Tensor:
    """A-hat as a dense matrix, from its definition."""
    n = csr.num_rows
    a = torch.eye(n, dtype=torch.float64)
    for row in range(n):
        for k in range(int(csr.indptr[row]), int(csr.indptr[row + 1])):
            a[row, int(csr.indices[k])] += 1.0 if csr.values is None else float(csr.values[k])
    degree = a.sum(dim=1)
    if norm == "mean":
        return a / degree[:, None]
    return a / degree.sqrt()[:, None] / degree.sqrt()[None, :]


@pytest.mark.parametrize("norm", ["sym", "mean"])
@pytest.mark.parametrize("weighted", [False, True])
def test_aggregation_is_the_dense_product(monkeypatch, norm, weighted):
    data = tiny_sequence(weighted=weighted)
    serve(monkeypatch, data)
    trainer = ReferenceSystem(torch.float64).open(tiny_workload(norm=norm))
    for t, csr in enumerate(data.topology):
        want = dense_a_hat(csr, norm) @ data.features[t].double()
        torch.testing.assert_close(trainer.aggregator.first(t), want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("task", ["node", "link"])
def test_gradients_match_finite_differences(monkeypatch, model, task):
    serve(monkeypatch, tiny_sequence(nodes=6, edges=9, snapshots=5))
    work = tiny_workload(model=model, task=task, loss_on="every", frame=3, norm="mean")
    trainer = ReferenceSystem(torch.float64).open(work)
    gradients = trainer.gradients(1)
    assert set(gradients) == set(trainer.state())
    for name, parameter in trainer.trained().items():
        # A random direction, not the first entry: a lone entry may sit on a dead unit.
        way = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)).double()
        way /= way.norm()
        with torch.no_grad():
            parameter += 1e-6 * way
            up = trainer.loss(1)
            parameter -= 2e-6 * way
            down = trainer.loss(1)
            parameter += 1e-6 * way
        slope = float((gradients[name] * way).sum())
        assert (up - down) / 2e-6 == pytest.approx(slope, rel=1e-4, abs=1e-8), name


def test_frames_and_targets(monkeypatch):
    data = tiny_sequence(snapshots=7)
    serve(monkeypatch, data)
    trainer = get_system("reference").open(tiny_workload(frame=4))
    assert (trainer.num_frames, trainer.task.times(2)) == (3, range(2, 6))
    assert get_system("reference").open(tiny_workload(frame=4, stride=2)).num_frames == 2
    with pytest.raises(InvalidInputError, match=r"frame must be in 0\.\.2, got 3"):
        trainer.step(3)
    seen = []
    head = SimpleNamespace(loss=lambda hidden, target: seen.append(target) or target.sum())
    trainer.task.loss(head, 2, [torch.zeros(12, 5)])
    assert torch.equal(seen[0], data.targets[6])


def test_what_cannot_be_trained_is_refused(monkeypatch):
    negative = tiny_sequence(nodes=4, snapshots=3, edges=0)
    negative.topology[0] = csr_of([(0, 2)], 4, {(0, 2): -5.0})
    for data, fields, switches, words in (
        (tiny_sequence(snapshots=4), {"frame": 4}, {}, "frame 4 needs 5 snapshots"),
        (tiny_sequence(), {"feature_dim": 2}, {}, "feature_dim is 2"),
        (tiny_sequence(), {}, {"fast": True}, "technique 'fast'"),
        (negative, {"frame": 2}, {}, "vertex 2 sum to -1 or less"),
    ):
        serve(monkeypatch, data)
        with pytest.raises((InvalidInputError, UnknownKeyError), match=words):
            get_system("reference").open(tiny_workload(**fields), switches=switches)


def test_link_pairs_are_edges_capped_and_seeded():
    n = 200
    full = csr_of([(i, j) for i in range(n) for j in range(n)], n)
    data = TinySequence([full, csr_of([], n)], torch.zeros(2, n, 3), torch.zeros(2, n), n)
    work = tiny_workload(task="link", frame=1)
    pairs, label = FrameTask(data, work, device=torch.device("cpu")).pairs(0)
    assert pairs.shape == (2, 2 * MAX_PAIRS)
    assert int(label.sum()) == MAX_PAIRS
    assert bool((pairs[0, :MAX_PAIRS] != pairs[1, :MAX_PAIRS]).all())  # no loops: real edges
    again, _ = FrameTask(data, work, device=torch.device("cpu")).pairs(0)
    assert torch.equal(pairs, again)
    assert FrameTask(data, work, device=torch.device("cpu")).pairs(1)[0].shape == (2, 0)


# torch.compile over the reference: the same numbers, one compilation, a reason without one.


@pytest.mark.machines_arithmetic
@pytest.mark.parametrize(
    ("model", "loss_on", "task"),
    [("tgcn_model", "every", "link"), ("evolvegcn", "last", "link"), ("mpnn_lstm", "last", "node")],
)
def test_traced_as_the_reference_and_once(monkeypatch, model, loss_on, task):
    data = tiny_sequence()
    assert len({csr.nnz for csr in data.topology}) > 1  # snapshots differ in their edges
    serve(monkeypatch, data)
    if reason := compiled.lacking("cpu"):
        pytest.skip(reason)
    plain = torch.compile  # traces and differentiates as ever, and leaves the C++ compiler out
    monkeypatch.setattr(
        torch, "compile", lambda f, *, mode, **given: plain(f, backend="aot_eager", **given)
    )
    work = tiny_workload(lr=1e-2, model=model, loss_on=loss_on, task=task, frame=2)
    trainer, oracle = get_system("compiled").open(work), ReferenceSystem(torch.float64).open(work)
    trainer.prepare()
    for frame in (0, oracle.num_frames - 1):
        assert relative(trainer.evaluate(frame), oracle.evaluate(frame)) < 1e-5
        got, want = trainer.gradients(frame), oracle.gradients(frame)
        assert got.keys() == want.keys()
        whole = torch.cat([g.flatten() for g in want.values()])
        assert relative(torch.cat([got[k].flatten() for k in want]), whole) < 1e-5
    for frame in range(oracle.num_frames):
        assert trainer.step(frame) == pytest.approx(oracle.step(frame), rel=1e-5)
    assert trainer.meter.counters["recompilations"] == 0
    assert 0 < trainer.padding < 1
    assert "compiled 1 graph in" in trainer.notes[0]


@pytest.mark.machines_arithmetic
def test_without_a_compiler_it_says_so(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    (reason,) = get_system("compiled").unsupported(tiny_workload(), "cpu")
    assert "no-such-compiler" in reason
    with pytest.raises(UnsupportedError, match="no-such-compiler"):
        timed("compiled", tiny_workload(), RunContext("cpu", "smoke", 1))


# Predictors of snapshots that train nothing.

PLAIN = {
    "last_value": lambda before: before[-1],
    "historical_mean": lambda before: [sum(c) / len(before) for c in zip(*before, strict=True)],
}


@pytest.mark.parametrize("name", SNAPSHOT_BASELINES)
@pytest.mark.parametrize(("first", "last"), [(1, 2), (1, 9), (4, 7), (8, 9)])
def test_predictions_are_those_of_a_loop_over_the_past(name, first, last):
    targets = torch.randn(9, 5, generator=torch.Generator().manual_seed(3))
    values = targets.double().tolist()
    wanted = [PLAIN[name](values[:snapshot]) for snapshot in range(first, last)]
    wanted = torch.tensor(wanted, dtype=torch.float64)
    targets[last - 1 :] = torch.nan  # neither the last snapshot that is predicted nor a later one
    found = SNAPSHOT_BASELINES[name](targets, first, last)
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", SNAPSHOT_BASELINES)
@pytest.mark.parametrize(("first", "last"), [(0, 3), (2, 2), (3, 2), (2, 5)])
def test_ranges_without_a_past_or_without_snapshots_are_refused(name, first, last):
    with pytest.raises(InvalidInputError):
        SNAPSHOT_BASELINES[name](torch.zeros(4, 2), first, last)


def test_errors_are_means_over_all_values():
    found = regression_errors(torch.tensor([[1.0, 2.0], [0.0, -1.0]]), torch.zeros(2, 2))
    assert (found.squared, found.absolute) == (1.5, 1.0)
    one, nan, inf = (torch.tensor([[value]]) for value in (0.0, torch.nan, torch.inf))
    for predicted, true in (
        (torch.zeros(2, 3), torch.zeros(3, 2)), (torch.zeros(0, 3),) * 2, (nan, one), (one, inf)
    ):  # fmt: skip
        with pytest.raises(InvalidInputError):
            regression_errors(predicted, true)
