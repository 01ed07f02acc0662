"""DGC's workload predictor: chunks that it measures, training, errors, the file of a machine."""

from __future__ import annotations

import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_data import tiny_sequence

from dgbench.kernels_cuda.supergraph import build_supergraph
from dgbench.runtime.errors import StoreError, UnknownKeyError
from dgbench.systems.base.calibration import calibration_path
from dgbench.systems.dgc import calibrated, workloads
from dgbench.systems.dgc.chunk_samples import GraphChunks, RandomChunks
from dgbench.systems.dgc.chunk_times import ENCODERS, MODELS, ChunkTimer, model_named, statistics_of
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


def test_unseen_chunks_are_unseen_and_noise_is_told_apart():
    timer = LawTimer(noise=0.02)
    found = study("tgcn_2layer", [], TINY, timer=lambda hidden: timer)
    trained, tested, again = timer.seen
    assert not set(trained) & set(tested)
    assert tested == again
    assert 0.005 < found.repeat[WHOLE] < 0.05
    assert found.errors[WHOLE, "mlp"].mean < found.errors[WHOLE, "vertices"].mean
    s = sizes_of(7)
    parts = [found.predictors[e].guess("mlp", s, found.shapes[0], e) for e in ENCODERS]
    torch.testing.assert_close(found.workload("mlp", s), parts[0] + parts[1])


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
    s, of = sizes_of(9), "tgcn_2layer"
    direct = study(of, [], TINY, timer=lambda hidden: LawTimer())
    for found, wanted in (
        (kept.mlp(of, SHAPE, s), direct.workload("mlp", s)),
        (kept.linear(of)(s), direct.workload("linear", s)),
        (kept.mlp(of, SHAPE, s, fused=True), direct.workload("mlp", s, fused=True)),
    ):
        torch.testing.assert_close(found, wanted)


def test_broken_foreign_and_absent_files_are_errors(machine):
    with pytest.raises(StoreError):
        calibrated.load(machine)
    made(machine)
    whole = machine.read_text()
    for damage in (
        lambda c: c.update(schema=99),
        lambda c: c["models"]["tgcn_2layer"]["encoders"]["time"]["layers"].pop(),
        lambda c: c["models"]["tgcn_2layer"].pop("sizes"),
        lambda c: c.update(machine={"name": "another processor", "threads": 1}),
    ):
        content = json.loads(whole)
        damage(content)
        machine.write_text(json.dumps(content))
        if content["machine"] == json.loads(whole)["machine"]:
            with pytest.raises(StoreError):
                calibrated.load(machine)
        with pytest.warns(RuntimeWarning):
            kept, why = calibrated.find("cpu")
        assert kept is None
        assert why


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


def test_what_stands_in_is_measured_once_a_machine(machine, monkeypatch):
    """Another process, and another run, must place the same chunks on the same workers."""
    asked = []

    class Wavering(LawTimer):
        def measure(self, *given, **more):
            asked.append(1)
            return len(asked) * super().measure(*given, **more)

    def in_another_process(name: str = "mlp", hidden: int = 32) -> torch.Tensor:
        workloads._measured.cache_clear()
        return workload_of(name, shape_of(model_named("tgcn_2layer", 2, hidden)))(sizes_of(20))

    monkeypatch.setattr(workloads, "ChunkTimer", lambda model, **options: Wavering())
    first = in_another_process()
    assert torch.equal(in_another_process("linear"), first)
    assert len(asked) == 1
    kept = calibration_path(workloads.STAND_IN, "cpu")
    kept.write_text(kept.read_text()[:-20])  # what is damaged is measured again
    in_another_process()
    assert len(asked) == 2
    in_another_process(hidden=16)
    in_another_process()
    assert len(asked) == 3  # one more size leaves the first one there


def graph_of(seed: int, presence: str = "span"):
    data = tiny_sequence(nodes=9, snapshots=6, edges=14, seed=seed)
    return build_supergraph(data.topology[:-1], presence=presence)


@given(st.integers(0, 50), st.integers(1, 5), st.sampled_from(("edges", "span", "tail")))
@settings(max_examples=40)
def test_a_chunk_holds_what_its_rows_hear(seed, count, presence):
    """A-hat x row by row, over a dictionary of who hears whom; sizes are the partition's."""
    graph = graph_of(seed, presence)
    draw = torch.Generator().manual_seed(seed)
    chunk = torch.randint(count, (graph.num_vertices,), generator=draw).int()
    cut, hears = GraphChunks(graph, chunk, count, "tiny"), graph.incoming()
    x, degree = torch.rand(graph.num_vertices), (hears.indptr.diff() + 1).float()
    for place in range(count):
        own, found = (chunk == place).nonzero().squeeze(1), cut[place]
        assert found.rows == own.numel() == int(found.lengths.sum())
        heard = {
            v: hears.indices[hears.indptr[v] : hears.indptr[v + 1]].long() for v in own.tolist()
        }
        others = sorted({u for some in heard.values() for u in some.tolist() if chunk[u] != place})
        shown = x[torch.cat([own, torch.tensor(others, dtype=torch.int64)])]
        assert found.csr.num_cols == shown.numel()
        for row, (v, far) in enumerate(heard.items()):
            entries = slice(int(found.csr.indptr[row]), int(found.csr.indptr[row + 1]))
            columns = found.csr.indices[entries].long()
            assert bool((columns.diff() > 0).all())
            wanted = (x[far] / (degree[v] * degree[far]).sqrt()).sum()
            torch.testing.assert_close((found.csr.values[entries] * shown[columns]).sum(), wanted)
            torch.testing.assert_close(found.loop[row], 1 / degree[v])
    wanted = chunk_statistics(graph, chunk, count)
    found = statistics_of([cut[i] for i in range(count)])
    for name in ("vertices", "edges", "inner_edges", "sequences", "longest"):
        assert torch.equal(getattr(found, name), getattr(wanted, name)), name


@pytest.mark.parametrize("model", MODELS)
def test_each_pass_reaches_exactly_the_parameters_of_its_encoder(model):
    net = model_named(model, 2, 4)
    timer = ChunkTimer(net, clock=lambda: 0.0, least=1, most=1)
    chunk = next(c for c in RandomChunks(4, 60).take(20) if c.csr.num_cols > c.rows > 5)
    reached = []
    for encoder in ENCODERS:
        timer.job(chunk, encoder)()
        made = {name: p.grad for name, p in net.named_parameters() if p.grad is not None}
        assert all(bool(grad.isfinite().all()) for grad in made.values())
        reached.append({name for name in made if not name.startswith("head")})
    assert all(reached)
    assert not reached[0] & reached[1]
    every = {name for name, _ in net.named_parameters() if not name.startswith("head")}
    assert reached[0] | reached[1] == every
    # Chunks of one vertex, of the first and of one that nobody hears, and one without edges.
    graph = graph_of(1)
    cut = GraphChunks(graph, torch.arange(graph.num_vertices).int(), graph.num_vertices, "tiny")
    bare = next(c for c in RandomChunks(4, 9).take(99) if c.csr.nnz == 0)
    for chunk in (cut[0], cut[graph.num_vertices - 1], bare):
        assert timer.both(chunk) == (0.0, 0.0)
