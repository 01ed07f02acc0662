"""The PyG-Temporal family: what it counts, refuses and says about itself."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from contextlib import contextmanager

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_data import csr_of, serve, tiny_sequence, tiny_workload

from dgbench.runtime.errors import MissingPackageError, UnsupportedError
from dgbench.runtime.meter import Meter
from dgbench.runtime.precision import plain_products
from dgbench.runtime.transfer import open_link
from dgbench.runtime.transfer.arena import ArenaLink
from dgbench.systems.base import get_system
from dgbench.systems.pygt import convolution, released
from dgbench.systems.pygt import system as pygt_system
from dgbench.systems.pygt.convolution import normalised_two_way, spmm
from dgbench.systems.pygt.phases import LayerPhases
from dgbench.systems.pygt.transfer import Mover, Packet

FAMILY = ("pygt", "pygt-a", "pygt-r", "pygt-g")
has_package = pytest.mark.skipif(
    importlib.util.find_spec("torch_geometric_temporal") is None,
    reason="torch-geometric-temporal is not installed",
)


@pytest.fixture
def without_package(monkeypatch):
    """torch-geometric-temporal hidden from the import system."""
    real = importlib.util.find_spec

    def find(name, *rest):
        return None if name == "torch_geometric_temporal" else real(name, *rest)

    monkeypatch.setattr(importlib.util, "find_spec", find)
    for cached in (released.import_pygt, released.cell_classes, released.evolvegcn_check):
        cached.cache_clear()
    yield
    for cached in (released.import_pygt, released.cell_classes, released.evolvegcn_check):
        cached.cache_clear()


def test_what_is_loaded_ahead_leaves_no_code_to_write_and_starts_no_thread():
    code = """
import sys
from dgbench.harness.runner.server import count_threads
from dgbench.systems.base import get_system
import torch_geometric.nn
threads = count_threads()
get_system("pygt").load_ahead()
assert count_threads() == threads
before = set(sys.modules)
from dgbench.systems.pygt.released import cell_classes
classes = cell_classes()
classes.tgcn(2, 3), classes.mpnn_lstm(2, 3, 5, 1, 0.0), classes.fixed_w(2, 3)
print(*sorted(name for name in set(sys.modules) - before if "propagate" in name))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@has_package
def test_the_released_cells_are_used_and_no_stand_in_is_left_behind():
    pygt = released.import_pygt()
    package = importlib.util.find_spec("torch_geometric_temporal")
    folder = package.submodule_search_locations[0]
    for cell in (pygt.TGCN, pygt.MPNNLSTM, pygt.EvolveGCNO, pygt.GCNConv_Fixed_W):
        assert sys.modules[cell.__module__].__file__.startswith(folder)
    assert released.cell_classes().released
    stand_in = sys.modules.get("torch_sparse")
    assert stand_in is None or stand_in.__spec__ is not None


@has_package
def test_evolvegcn_check_reports_what_it_ran():
    said = released.evolvegcn_check()
    assert released.version() in said
    assert "weight changes" in said or "weight does not change" in said
    assert "second backward pass" in said


def test_without_the_package_stand_ins_take_over_and_say_so(monkeypatch, without_package):
    with pytest.raises(MissingPackageError) as caught:
        released.import_pygt()
    assert "pip install" in caught.value.hint
    assert "not checked" in released.evolvegcn_check()
    serve(monkeypatch, tiny_sequence(weighted=True))
    for model in ("tgcn_model", "evolvegcn", "mpnn_lstm"):
        work = tiny_workload(model=model)
        want = get_system("reference").open(work).gradients(1)
        for name in FAMILY:
            trainer = get_system(name).open(work)
            assert any("re-implemented (PyG GCNConv)" in note for note in trainer.notes)
            got = trainer.gradients(1)
            for key, value in want.items():
                torch.testing.assert_close(got[key], value, rtol=1e-4, atol=1e-6)


def test_what_the_released_cells_cannot_do_is_said(monkeypatch):
    serve(monkeypatch, tiny_sequence())
    for fields, word in (
        ({"norm": "mean"}, "symmetrically only"),
        ({"model": "evolvegcn", "cell": "lstm"}, "has a GRU"),
        ({"model": "mpnn_lstm", "loss_on": "every"}, "last snapshot's output only"),
    ):
        for name in FAMILY:
            system = get_system(name)
            assert word in " ".join(system.unsupported(tiny_workload(**fields), "cpu"))
            with pytest.raises(UnsupportedError, match=word):
                system.open(tiny_workload(**fields))
        assert get_system("reference").unsupported(tiny_workload(**fields), "cpu") == []


def expected_bytes(name: str, model: str, data, times: range) -> int:
    """Bytes of one frame, from the formulas: 16 per COO edge, 4 per float, 8 per CSR entry."""
    nodes, width = data.features.shape[1:]
    total = 0
    for step, t in enumerate(times):
        csr = data.topology[t]
        edges = csr.nnz * (16 + (4 if csr.values is not None else 0))
        total += 4 * nodes * width  # raw features, or the stored aggregation in their place
        if name in ("pygt", "pygt-a"):
            total += edges
            continue
        if model == "mpnn_lstm":
            total += 4 * nodes * (width if step == 0 else 1)
        if model != "tgcn_model":
            both = 2 * (4 * (nodes + 1) + 8 * (csr.nnz + nodes))
            total += both if name == "pygt-g" else edges
    return total


@pytest.mark.parametrize("name", FAMILY)
@pytest.mark.parametrize("model", ["tgcn_model", "evolvegcn", "mpnn_lstm"])
@pytest.mark.parametrize("weighted", [False, True])
def test_bytes_and_aggregations_of_a_step(monkeypatch, name, model, weighted):
    data = tiny_sequence(weighted=weighted)
    serve(monkeypatch, data)
    trainer = get_system(name).open(tiny_workload(model=model))
    trainer.prepare()
    reuse = name in ("pygt-r", "pygt-g")
    assert trainer.meter.counters["aggregations"] == (len(data) if reuse else 0)
    trainer.meter.reset()
    trainer.step(2)
    counters = trainer.meter.counters
    times = range(2, 6)
    assert counters["bytes_h2d_counted"] == expected_bytes(name, model, data, times)
    edges = sum(data.topology[t].nnz + data.num_nodes for t in times)
    passes = {"tgcn_model": 3, "evolvegcn": 2, "mpnn_lstm": 2}[model]
    if reuse:
        passes = 0 if model == "tgcn_model" else 1
    assert counters["edges_aggregated"] == passes * edges
    merged = model == "mpnn_lstm" and name != "pygt-g"  # one launch over the block diagonal
    assert counters["aggregations"] == passes * (1 if merged else len(times))


def test_preparing_twice_or_not_at_all_changes_nothing(monkeypatch):
    serve(monkeypatch, tiny_sequence())
    work = tiny_workload(model="evolvegcn")
    lazy, eager = (get_system("pygt-r").open(work) for _ in range(2))
    eager.prepare()
    eager.prepare()
    assert eager.meter.counters["aggregations"] == 7
    assert torch.equal(lazy.evaluate(1), eager.evaluate(1))


@settings(deadline=None, max_examples=40)
@given(
    nodes=st.integers(1, 9),
    pairs=st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=30),
    width=st.integers(1, 5),
)
def test_two_way_product_and_gradient_are_the_dense_ones(nodes, pairs, width):
    pairs = [(s % nodes, d % nodes) for s, d in pairs]
    csr = csr_of(pairs, nodes)
    dense = torch.eye(nodes, dtype=torch.float64)
    for s, d in set(pairs):
        if s != d:
            dense[d, s] = 1
    root = dense.sum(dim=1).rsqrt()
    dense = root[:, None] * dense * root[None, :]
    h = torch.randn(nodes, width, requires_grad=True)
    out = spmm(normalised_two_way(csr), h)
    torch.testing.assert_close(out.double(), dense @ h.double(), rtol=1e-5, atol=1e-6)
    grad = torch.randn(nodes, width)
    out.backward(grad)
    torch.testing.assert_close(h.grad.double(), dense.t() @ grad.double(), rtol=1e-5, atol=1e-6)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
@pytest.mark.parametrize("name", FAMILY)
@pytest.mark.parametrize("model", ["tgcn_model", "evolvegcn", "mpnn_lstm"])
def test_same_on_the_gpu(monkeypatch, name, model):
    serve(monkeypatch, tiny_sequence())
    plain_products()
    work = tiny_workload(model=model)
    if reasons := get_system(name).unsupported(work, "cuda"):
        pytest.skip("; ".join(reasons))
    trainer = get_system(name).open(work, device="cuda")
    want = get_system("reference").open(work).gradients(1)
    for key, value in trainer.gradients(1).items():
        torch.testing.assert_close(value, want[key], rtol=1e-4, atol=1e-5)


SWITCHES = ({}, {"arena": True})


@pytest.mark.parametrize("name", FAMILY)
@pytest.mark.parametrize("model", ["tgcn_model", "evolvegcn", "mpnn_lstm"])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_arena_moves_what_is_counted_and_changes_no_bit(monkeypatch, name, model, weighted):
    data = tiny_sequence(weighted=weighted)
    serve(monkeypatch, data)
    plain, arena = (
        get_system(name).open(tiny_workload(model=model), switches=on) for on in SWITCHES
    )
    for trainer in (plain, arena):
        trainer.prepare()
        trainer.meter.reset()
    for frame in (0, 2, 1, 2):
        assert arena.step(frame) == plain.step(frame)
    times = [*range(0, 4), *range(2, 6), *range(1, 5), *range(2, 6)]
    frames = [range(first, first + 4) for first in (0, 2, 1, 2)]
    want = sum(expected_bytes(name, model, data, frame) for frame in frames)
    assert plain.meter.counters["bytes_h2d_counted"] == want
    assert "bytes_h2d_moved" not in plain.meter.counters
    assert arena.meter.counters["bytes_h2d_counted"] == want
    assert arena.meter.counters["bytes_h2d_moved"] == want
    assert arena.meter.counters["transfers"] == len(times)
    for key, value in plain.state().items():
        assert torch.equal(arena.state()[key], value), key
    for key, value in plain.gradients(0).items():
        assert torch.equal(arena.gradients(0)[key], value), key
    assert torch.equal(arena.evaluate(1), plain.evaluate(1))
    assert arena.meter.spent["copy_busy"] > 0
    assert plain.meter.spent == {}
    thread = getattr(arena._mover._link.engine, "thread", None)
    assert (thread is not None and thread.running) == (name != "pygt")
    arena.close()
    assert thread is None or not thread.running


def test_bytes_of_an_epoch_are_those_of_the_formula(monkeypatch):
    """PyGT moves every snapshot in each of its frames: 16 bytes an edge, 4 N F of features."""
    data = tiny_sequence()
    serve(monkeypatch, data)
    for name in ("pygt", "pygt-a"):
        trainer = get_system(name).open(tiny_workload(), switches={"arena": True})
        trainer.train_epoch()
        frames = [range(i, i + 4) for i in range(trainer.num_frames)]
        moved = sum(
            16 * data.topology[t].nnz + 4 * data.features[t].numel() for f in frames for t in f
        )
        assert trainer.meter.counters["bytes_h2d_moved"] == moved
        trainer.close()


def test_the_arena_is_no_cuda_device(monkeypatch):
    serve(monkeypatch, tiny_sequence())
    system = get_system("pygt-a")
    monkeypatch.setattr(type(system), "unsupported", lambda self, workload, device: [])
    with pytest.raises(UnsupportedError, match="arena"):
        system.open(tiny_workload(), device="cuda", switches={"arena": True})


def test_the_csr_variant_says_where_its_kernel_is_missing(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for usable, count in ((False, 1), (True, 0)):
        info = {"cuda": {"usable": usable, "reason": "nvcc was not found"}}
        monkeypatch.setattr(pygt_system, "build_info", lambda info=info: info)
        reasons = get_system("pygt-g").unsupported(tiny_workload(), "cuda")
        assert ["nvcc was not found" in reason for reason in reasons] == [True] * count
        assert get_system("pygt-r").unsupported(tiny_workload(), "cuda") == []


def test_the_csr_product_on_cuda_takes_the_kernel_both_ways(monkeypatch):
    """The branch for CUDA, with the kernel stood in for by a dense product on the CPU."""
    seen = []

    def kernel(csr, x):
        seen.append(csr.indptr.dtype)
        rows = torch.repeat_interleave(torch.arange(csr.num_rows), csr.indptr.diff())
        dense = torch.zeros(csr.num_rows, csr.num_cols)
        dense[rows, csr.indices.long()] = csr.values
        return dense @ x

    adjacency = normalised_two_way(csr_of([(0, 1), (2, 1), (1, 0), (3, 2)], 5))
    h, grad = torch.randn(5, 3, requires_grad=True), torch.randn(5, 3)
    want = spmm(adjacency, h)
    (want_grad,) = torch.autograd.grad(want, h, grad)
    monkeypatch.setattr(convolution, "spmm_gespmm", kernel)
    monkeypatch.setattr(convolution, "_on_cuda", lambda x: True)
    got = spmm(adjacency, h)
    (got_grad,) = torch.autograd.grad(got, h, grad)
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(got_grad, want_grad)
    assert seen == [torch.int64] * 2


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("arena", [False, True])
def test_packets_keep_their_order_and_are_counted(arena, ahead):
    meter = Meter()
    packets = [Packet(x=torch.full((2, 3), float(i))) for i in range(4)]
    link = open_link("cpu", meter, arena=arena, asynchronous=ahead, slots=4)
    mover = Mover(link, meter, ahead=ahead)
    for _ in range(3):  # slots are used again
        got = list(mover.stream(iter(packets)))
        assert [int(p.x[0, 0]) for p in got] == [0, 1, 2, 3]
    assert meter.counters["bytes_h2d_counted"] == 3 * 4 * 24
    mover.close()


def test_ahead_means_sent_before_the_one_before_is_used():
    """The order of sends and of packets handed out, by a link that writes down what it is asked."""
    asked = []

    class Noted(ArenaLink):
        def send(self, tensors):
            asked.append(f"send {int(tensors[0][0])}")
            return super().send(tensors)

    packets = [Packet(x=torch.full((2,), float(i))) for i in range(3)]
    for ahead, want in ((False, "send 0, use 0, send 1, use 1, send 2, use 2"),
                        (True, "send 0, send 1, use 0, send 2, use 1, use 2")):  # fmt: skip
        asked.clear()
        link = Noted(Meter(), asynchronous=ahead, slots=3)
        mover = Mover(link, Meter(), ahead=ahead)
        for packet in mover.stream(packets):
            asked.append(f"use {int(packet.x[0])}")
        mover.close()
        assert ", ".join(asked) == want


@pytest.mark.parametrize("name", FAMILY)
@pytest.mark.parametrize("model", ["tgcn_model", "evolvegcn", "mpnn_lstm"])
def test_an_instrumented_step_is_divided_and_computes_the_same(monkeypatch, name, model):
    serve(monkeypatch, tiny_sequence())
    work = tiny_workload(model=model)
    meter = Meter(timing=True)
    timed = get_system(name).open(work, meter=meter, switches={"arena": True})
    plain = get_system(name).open(work)
    timed.prepare()
    meter.reset()
    for frame in range(3):
        assert timed.step(frame) == plain.step(frame)
    assert set(meter.phases()) == {"gnn", "rnn", "transfer", "update", "compute"}
    assert all(seconds > 0 for seconds in meter.phases().values())
    timed.close()


class Chronicle:
    """A meter whose clock counts: it writes down which phase is on when a layer does its work."""

    def __init__(self):
        self.now = ["compute"]

    @contextmanager
    def phase(self, name):
        self.now.append(name)
        yield
        self.now.pop()

    def turn(self, name):
        self.now[-1] = name


class _Spy(torch.autograd.Function):
    """x -> 2 x, and a note of the phase in which it ran forward and backward."""

    @staticmethod
    def forward(ctx, x, label, meter, seen):
        ctx.note = label, meter, seen
        seen.append(("forward", label, meter.now[-1]))
        return 2 * x

    @staticmethod
    def backward(ctx, grad):
        label, meter, seen = ctx.note
        seen.append(("backward", label, meter.now[-1]))
        return 2 * grad, None, None, None


@settings(deadline=None, max_examples=60)
@given(
    plan=st.lists(
        st.tuples(
            st.sampled_from(["gnn", "rnn", "compute", "rnn(gnn)"]),
            st.integers(0, 5),
            st.integers(0, 5),
        ),
        min_size=1,
        max_size=8,
    ),
    passes=st.integers(1, 2),
)
def test_layers_are_charged_to_their_phase_both_ways(plan, passes):
    """Any graph of layers: each reads two of the earlier outputs, and some layers hold another."""
    meter, seen = Chronicle(), []
    phases = LayerPhases(meter)

    class Layers:
        def gnn(self, x, label="gnn"):
            return _Spy.apply(x, label, meter, seen) + 1

        def rnn(self, x):
            return _Spy.apply(x, "rnn", meter, seen) * 3

        def around(self, x):
            return _Spy.apply(self.gnn(_Spy.apply(x, "rnn", meter, seen)), "rnn", meter, seen)

    layers = Layers()
    for method, phase in (("gnn", "gnn"), ("rnn", "rnn"), ("around", "rnn")):
        phases.cover(layers, method, phase)
    call = {
        "gnn": layers.gnn,
        "rnn": layers.rnn,
        "rnn(gnn)": layers.around,
        "compute": lambda x: _Spy.apply(x, "compute", meter, seen),
    }
    leaf = torch.ones(3, requires_grad=True)
    for _ in range(passes):
        seen.clear()
        phases.clear()
        made = [leaf * 1.5]
        for kind, first, second in plan:
            x = made[first % len(made)] + made[second % len(made)]
            made.append(call[kind](x))
        loss = torch.stack(made).sum()
        assert meter.now == ["compute"]
        phases.mark(loss)
        with meter.phase("compute"):
            loss.backward()
        assert {way for way, _, _ in seen} == {"forward", "backward"}
        assert [entry for entry in seen if entry[1] != entry[2]] == []


def test_marking_a_loss_without_a_graph_does_nothing():
    LayerPhases(Meter(timing=True)).mark(torch.tensor(1.0))
