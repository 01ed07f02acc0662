"""The PyG-Temporal family: what it counts, refuses and says about itself."""

from __future__ import annotations

import importlib.util
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_data import csr_of, serve, tiny_sequence, tiny_workload

from dgbench.runtime.errors import MissingPackageError, UnsupportedError
from dgbench.systems.base import get_system
from dgbench.systems.pygt import released
from dgbench.systems.pygt.convolution import normalised_two_way, spmm
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
    work = tiny_workload(model=model)
    trainer = get_system(name).open(work, device="cuda")
    want = get_system("reference").open(work).gradients(1)
    for key, value in trainer.gradients(1).items():
        torch.testing.assert_close(value, want[key], rtol=1e-4, atol=1e-5)


def test_packets_keep_their_order_and_are_counted():
    from dgbench.runtime.meter import Meter

    meter = Meter()
    packets = [Packet(x=torch.full((2, 3), float(i))) for i in range(4)]
    got = list(Mover(torch.device("cpu"), meter, asynchronous=True).stream(iter(packets)))
    assert [int(p.x[0, 0]) for p in got] == [0, 1, 2, 3]
    assert meter.counters["bytes_h2d_counted"] == 4 * 24
