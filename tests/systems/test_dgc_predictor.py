"""DGC's workload predictor: chunks that it measures, training, errors, the file of a machine."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import torch
from dgc_rows import kept
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_data import tiny_sequence

from dgbench.kernels_cuda.supergraph import build_supergraph
from dgbench.lab.table import number
from dgbench.runtime.errors import StoreError, UnknownKeyError
from dgbench.systems.base import Measurement
from dgbench.systems.base.calibration import calibration_path
from dgbench.systems.dgc import calibrated, workloads
from dgbench.systems.dgc.chunk_samples import GraphChunks, RandomChunks
from dgbench.systems.dgc.chunk_times import ENCODERS, MODELS, ChunkTimer, model_named, statistics_of
from dgbench.systems.dgc.experiments import fig16
from dgbench.systems.dgc.predictor import error_of
from dgbench.systems.dgc.study import WHOLE, StudySize, study
from dgbench.systems.dgc.supergraph import ChunkStatistics, chunk_statistics
from dgbench.systems.dgc.volumes import shape_of
from dgbench.systems.dgc.workloads import workload_of

SHAPE = shape_of(model_named("tgcn_2layer", 2, 32))
TINY = StudySize(train=60, test=20, largest=300, budget_s=60.0, epochs=60, units=32)


def sizes_of(count: int, seed: int = 1, largest: int = 3000) -> ChunkStatistics:
    return statistics_of(RandomChunks(seed, largest).take(count))


def law(s: ChunkStatistics) -> torch.Tensor:
    """Seconds of both encoders, float64[C, 2]; the second hangs on the longest sequence."""
    structure = 4e-4 + 5e-7 * s.vertices + 3e-8 * s.edges
    return torch.stack([structure, 3e-4 + 7e-7 * s.vertices + 2e-5 * s.longest], 1).double()


class LawTimer:
    """Stands for `ChunkTimer`: known times, and what was measured."""

    def __init__(self, model: str = "tgcn_2layer", hidden: int = 32, noise: float = 0.0) -> None:
        self.model = model_named(model, 2, hidden)
        self.noise, self.seen, self._draw = noise, [], torch.Generator().manual_seed(hidden)

    def measure(self, chunks, *, passes=2, budget_s=float("inf"), told=None):
        self.seen.append([(c.source, c.key) for c in chunks])
        times = law(statistics_of(chunks)) * (self.model.hidden_dim / 32)
        spread = torch.randn(times.shape, generator=self._draw, dtype=torch.float64)
        if told is not None:
            told(len(chunks))
        return times * (1 + self.noise * spread).clamp(min=0.1)


@given(st.lists(st.tuples(st.floats(0.1, 9), st.floats(0.1, 9)), min_size=2, max_size=20))
@settings(max_examples=40)
def test_an_error_is_equation_8_with_an_interval_around_it(pairs):
    guess, truth = (torch.tensor(side).double() for side in zip(*pairs, strict=True))
    found = error_of(guess, truth)
    wanted = sum(abs(p - m) / m for p, m in pairs) / len(pairs)
    assert found.mean == pytest.approx(wanted)
    each = ((guess - truth).abs() / truth).tolist()
    assert min(each) - 1e-12 <= found.low <= found.high <= max(each) + 1e-12
    assert found.count == len(pairs)


def test_chunks_are_dealt_out_by_each_workload_model():
    data = tiny_sequence(nodes=12, snapshots=8, edges=30, seed=2)
    part = fig16._Parted("tiny", data, build_supergraph(data.topology[:-1]))
    guess = SimpleNamespace(workload=lambda name, s, fused=False: s.vertices.double() + 1)
    seconds = part.cut.statistics.vertices.double() ** 2
    out = Measurement()
    part.balances(out, guess, seconds)
    row = kept(out, "fig16", {})
    for name in fig16.WORKLOADS:
        worker = part.assigned(guess, seconds, name)
        loads = [float(seconds[worker == m].sum()) for m in range(fig16.WORKERS)]
        average, dims = sum(loads) / len(loads), {"method": name, "dataset": "tiny"}
        wanted = max(loads) / max(min(loads), 1e-3 * average)
        assert number(row, "divergence", **dims) == pytest.approx(wanted)
        assert number(row, "imbalance", **dims) == pytest.approx(max(loads) / average)


def test_unseen_chunks_are_unseen_and_noise_is_told_apart():
    timer = LawTimer(noise=0.02)
    found = study("tgcn_2layer", [], TINY, timer=lambda hidden: timer)
    trained, tested, again = timer.seen
    assert not set(trained) & set(tested)
    assert tested == again
    assert (found.trained, found.tested) == (60, 20)
    assert 0.005 < found.repeat[WHOLE] < 0.05
    assert found.errors[WHOLE, "mlp"].mean < found.errors[WHOLE, "vertices"].mean
    assert set(found.errors) == {
        (encoder, guess)
        for encoder in (*ENCODERS, WHOLE)
        for guess in ("mlp", "mlp, the paper's inputs", "linear", "edges", "vertices")
    }
    s = sizes_of(7)
    total = found.workload("mlp", s)
    parts = [found.predictors[e].guess("mlp", s, found.shapes[0], e) for e in ENCODERS]
    torch.testing.assert_close(total, parts[0] + parts[1])


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine without a predictor; what measures is a law."""
    monkeypatch.setenv("DGBENCH_CACHE", str(tmp_path))

    def quick(model, cuts, size, *, device, told):
        return study(
            model, cuts, size, device=device, told=told,
            timer=lambda hidden: LawTimer(model, hidden),
        )  # fmt: skip

    monkeypatch.setattr(calibrated, "study", quick)
    workloads._measured.cache_clear()
    return calibration_path("dgc", "cpu")


def made(path, **options) -> dict:
    options = {"size": TINY, "models": ("tgcn_2layer",), "graphs": lambda quick: [], **options}
    return calibrated.calibrate(path, quick=True, **options)


def test_a_predictor_is_kept_and_predicts_the_same(machine):
    made(machine)
    kept, why = calibrated.find("cpu")
    assert why == ""
    s = sizes_of(9)
    direct = study("tgcn_2layer", [], TINY, timer=lambda hidden: LawTimer())
    torch.testing.assert_close(kept.mlp("tgcn_2layer", SHAPE, s), direct.workload("mlp", s))
    torch.testing.assert_close(kept.linear("tgcn_2layer")(s), direct.workload("linear", s))
    torch.testing.assert_close(
        kept.mlp("tgcn_2layer", SHAPE, s, fused=True), direct.workload("mlp", s, fused=True)
    )


def test_broken_foreign_absent_and_unwritable_files_are_errors(machine, tmp_path):
    with pytest.raises(StoreError):
        calibrated.load(machine)
    made(machine)
    whole = machine.read_text()
    for change in (
        lambda c: c.update(schema=99),
        lambda c: c["models"]["tgcn_2layer"]["encoders"]["time"]["layers"].pop(),
        lambda c: c["models"]["tgcn_2layer"].pop("sizes"),
    ):
        content = json.loads(whole)
        change(content)
        machine.write_text(json.dumps(content))
        with pytest.raises(StoreError):
            calibrated.load(machine)
        with pytest.warns(RuntimeWarning):
            assert calibrated.find("cpu")[0] is None
    other = {**json.loads(whole), "machine": {"name": "another processor", "threads": 1}}
    machine.write_text(json.dumps(other))
    with pytest.warns(RuntimeWarning):
        kept, why = calibrated.find("cpu")
    assert kept is None
    assert why
    (tmp_path / "a folder").mkdir()
    with pytest.raises(StoreError):
        made(tmp_path / "a folder")


def test_without_a_predictor_a_measured_linear_model_stands_in(machine, monkeypatch):
    monkeypatch.setattr(workloads, "ChunkTimer", lambda model, **options: LawTimer())
    s = sizes_of(20)
    assert torch.equal(workload_of("edges", SHAPE)(s), s.edges.double())  # counts need no machine
    with pytest.raises(UnknownKeyError, match="workload"):
        workload_of("sequences", SHAPE)
    for name in ("mlp", "linear"):
        found = workload_of(name, SHAPE, fused=False)
        assert found.source == "measured once"
        assert "dgbench calibrate dgc" in found.note
        assert error_of(found(s), law(s).sum(1)).mean < 0.3
        assert found(s).dtype == torch.float64


def test_what_stands_in_is_measured_once_a_machine(machine, monkeypatch):
    """Another process, and another run, must place the same chunks on the same workers."""
    asked = []

    class Wavering(LawTimer):
        def measure(self, *given, **more):
            asked.append(1)
            return len(asked) * super().measure(*given, **more)

    monkeypatch.setattr(workloads, "ChunkTimer", lambda model, **options: Wavering())
    s = sizes_of(20)
    first = workload_of("mlp", SHAPE)(s)
    workloads._measured.cache_clear()  # as in a process of its own
    assert torch.equal(workload_of("linear", SHAPE)(s), first)
    assert len(asked) == 1
    kept = calibration_path(workloads.STAND_IN, "cpu")
    whole = kept.read_text()
    for damaged in (whole[:-20], whole.replace("[", "[-1.0, ", 1)):
        kept.write_text(damaged)
        workloads._measured.cache_clear()
        workload_of("mlp", SHAPE)
    assert len(asked) == 3
    workload_of("mlp", shape_of(model_named("tgcn_2layer", 2, 16)))
    workloads._measured.cache_clear()
    workload_of("mlp", SHAPE)
    assert len(asked) == 4  # one more size leaves the first one there
    monkeypatch.setenv("DGBENCH_CACHE", "/proc/nowhere")
    workloads._measured.cache_clear()
    assert bool((workload_of("mlp", SHAPE)(s) >= 0).all())


FIELDS = ("vertices", "edges", "inner_edges", "sequences", "longest")


def graph_of(seed: int, presence: str = "span"):
    data = tiny_sequence(nodes=9, snapshots=6, edges=14, seed=seed)
    return build_supergraph(data.topology[:-1], presence=presence)


def chunked(graph, seed: int, count: int):
    draw = torch.Generator().manual_seed(seed)
    return torch.randint(count, (graph.num_vertices,), generator=draw).int()


@given(st.integers(0, 50), st.integers(1, 5), st.sampled_from(("edges", "span", "tail")))
@settings(max_examples=40)
def test_a_chunk_holds_what_its_rows_hear(seed, count, presence):
    graph = graph_of(seed, presence)
    chunk = chunked(graph, seed, count)
    cut = GraphChunks(graph, chunk, count, "tiny")
    hears = graph.incoming()
    x = torch.rand(graph.num_vertices)
    degree = (hears.indptr.diff() + 1).float()
    for place in range(count):
        own = (chunk == place).nonzero().squeeze(1)
        found = cut[place]
        assert found.rows == own.numel() == int(found.lengths.sum())
        # A-hat x row by row, over a dictionary of who hears whom.
        others: list[int] = []
        for v in own.tolist():
            heard = hears.indices[hears.indptr[v] : hears.indptr[v + 1]].tolist()
            others += [u for u in heard if chunk[u] != place]
        others = sorted(set(others))
        shown = x[torch.cat([own, torch.tensor(others, dtype=torch.int64)])]
        assert found.csr.num_cols == shown.numel()
        for row, v in enumerate(own.tolist()):
            entries = slice(int(found.csr.indptr[row]), int(found.csr.indptr[row + 1]))
            got = (found.csr.values[entries] * shown[found.csr.indices[entries].long()]).sum()
            heard = hears.indices[hears.indptr[v] : hears.indptr[v + 1]].long()
            wanted = (x[heard] / (degree[v] * degree[heard]).sqrt()).sum()
            torch.testing.assert_close(got, wanted)
            torch.testing.assert_close(found.loop[row], 1 / degree[v])
        assert bool((found.csr.indices.diff()[_inside(found.csr.indptr)] > 0).all())


def _inside(indptr):
    """For each entry, True if the next one is in the same row."""
    row = torch.repeat_interleave(torch.arange(indptr.numel() - 1), indptr.diff())
    return row.diff() == 0


@given(st.integers(0, 50), st.integers(1, 6))
@settings(max_examples=40)
def test_sizes_of_cut_chunks_are_the_partitions(seed, count):
    graph = graph_of(seed)
    chunk = chunked(graph, seed, count)
    cut = GraphChunks(graph, chunk, count, "tiny")
    wanted = chunk_statistics(graph, chunk, count)
    found = statistics_of([cut[i] for i in range(count)])
    for name in FIELDS:
        assert torch.equal(getattr(found, name), getattr(wanted, name)), name


@given(st.integers(0, 10_000), st.integers(1, 400))
@settings(max_examples=60)
def test_random_chunks_are_well_formed(seed, largest):
    for chunk in RandomChunks(seed, largest).take(2):
        csr, rows = chunk.csr, chunk.rows
        assert 1 <= rows <= largest
        assert int(chunk.lengths.sum()) == rows
        assert int(chunk.lengths.min()) >= 1
        assert csr.values.numel() == csr.nnz
        row = torch.repeat_interleave(torch.arange(rows), csr.indptr.diff())
        assert not bool((row == csr.indices).any())
        assert bool((csr.indices.diff()[_inside(csr.indptr)] > 0).all())
        far = csr.indices[csr.indices >= rows].unique()
        assert far.tolist() == list(range(rows, csr.num_cols))


@pytest.mark.parametrize("model", MODELS)
def test_each_pass_reaches_exactly_the_parameters_of_its_encoder(model):
    net = model_named(model, 2, 4)
    timer = ChunkTimer(net, clock=lambda: 0.0)
    chunk = next(c for c in RandomChunks(4, 60).take(20) if c.csr.num_cols > c.rows > 5)
    reached = []
    for encoder in ("structure", "time"):
        timer.job(chunk, encoder)()
        own = {name for name, p in net.named_parameters() if p.grad is not None}
        assert all(bool(p.grad.isfinite().all()) for p in net.parameters() if p.grad is not None)
        reached.append({name for name in own if not name.startswith("head")})
    every = {name for name, _ in net.named_parameters() if not name.startswith("head")}
    assert reached[0]
    assert reached[1]
    assert reached[0] | reached[1] == every
    assert not reached[0] & reached[1]


@pytest.mark.parametrize("model", MODELS)
def test_chunks_of_one_vertex_without_edges_and_of_none_can_be_run(model):
    timer = ChunkTimer(model_named(model, 2, 4), clock=lambda: 0.0, least=1, most=1)
    graph = graph_of(1)
    cut = GraphChunks(graph, torch.arange(graph.num_vertices).int(), graph.num_vertices, "tiny")
    for place in (0, graph.num_vertices - 1):
        assert timer.both(cut[place]) == (0.0, 0.0)
    bare = next(c for c in RandomChunks(4, 9).take(99) if c.csr.nnz == 0)
    assert timer.both(bare) == (0.0, 0.0)
