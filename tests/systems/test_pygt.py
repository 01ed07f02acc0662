"""The PyG-Temporal family: equal to the reference; what it counts, refuses and says of itself."""

from __future__ import annotations

import importlib.util
import sys
from itertools import product

import pytest
import torch
from tiny_data import serve, tiny_sequence, tiny_workload

from dgbench.runtime.errors import MissingPackageError, UnsupportedError
from dgbench.systems.base import get_system
from dgbench.systems.base.race import relative
from dgbench.systems.pygt import released
from dgbench.systems.reference import ReferenceSystem

FAMILY = ("pygt", "pygt-a", "pygt-r", "pygt-g")
has_package = pytest.mark.skipif(
    importlib.util.find_spec("torch_geometric_temporal") is None,
    reason="torch-geometric-temporal is not installed",
)


MODELS = ("tgcn_model", "evolvegcn", "mpnn_lstm")
LOSSES = [(model, loss_on) for model in MODELS for loss_on in ("last", "every")][:-1]
CASES = [
    (*which, task, n % 4 in (1, 2))  # any two of model, task and weights meet
    for n, (which, task) in enumerate(product(LOSSES, ("node", "link")))
]
TOLERANCE = 1e-5


@pytest.mark.parametrize(("model", "loss_on", "task", "weighted"), CASES)
def test_equal_to_the_reference(monkeypatch, model, loss_on, task, weighted):
    serve(monkeypatch, tiny_sequence(weighted=weighted))
    work = tiny_workload(model=model, loss_on=loss_on, task=task, lr=1e-2)
    exact = ReferenceSystem(torch.float64).open(work)
    ends = (0, exact.num_frames - 1)
    outputs, gradients = ({n: f(n) for n in ends} for f in (exact.evaluate, exact.gradients))
    losses = [exact.step(frame) for frame in range(exact.num_frames)]
    for name in ("reference", *FAMILY):
        trainer = get_system(name).open(work)
        trainer.prepare()
        for frame in ends:
            got, want = trainer.gradients(frame), gradients[frame]
            # A parameter with no influence (a bias before a batch norm) has a gradient of rounding
            # errors, so each is held to the norm of all of them together.
            whole = float(torch.cat([g.flatten() for g in want.values()]).norm())
            gaps = [float((got[key].double() - g).norm()) for key, g in want.items()]
            assert max(gaps) < TOLERANCE * whole, name
            assert relative(trainer.evaluate(frame), outputs[frame]) < TOLERANCE, name
            assert {k: g.shape for k, g in got.items()} == {k: g.shape for k, g in want.items()}
        stepped = [trainer.step(frame) for frame in range(trainer.num_frames)]
        assert stepped == pytest.approx(losses, rel=TOLERANCE), name
        assert set(trainer.state()) == set(exact.state())
        trainer.close()


@pytest.mark.parametrize("model", MODELS)
def test_small_frames_and_graphs_without_edges(monkeypatch, model):
    serve(monkeypatch, tiny_sequence(nodes=3, edges=0, snapshots=3))
    work = tiny_workload(model=model, frame=1)
    exact = ReferenceSystem(torch.float64).open(work)
    output, loss = exact.evaluate(1), exact.step(0)
    for name in ("reference", "pipad", *FAMILY):
        trainer = get_system(name).open(work)
        trainer.prepare()
        assert trainer.num_frames == 2
        assert relative(trainer.evaluate(1), output) < TOLERANCE, name
        assert trainer.step(0) == pytest.approx(loss, rel=TOLERANCE), name
        trainer.close()


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


def test_without_the_package_stand_ins_take_over_and_say_so(monkeypatch, request):
    def forget() -> None:
        for cached in (released.import_pygt, released.cell_classes, released.evolvegcn_check):
            cached.cache_clear()

    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec",
        lambda name, *rest: None if name == "torch_geometric_temporal" else real(name, *rest),
    )  # fmt: skip
    forget()
    request.addfinalizer(forget)
    with pytest.raises(MissingPackageError):
        released.import_pygt()
    assert "not checked" in released.evolvegcn_check()
    serve(monkeypatch, tiny_sequence(weighted=True))
    for model, name in product(MODELS, FAMILY):
        work = tiny_workload(model=model)
        trainer = get_system(name).open(work)
        assert any("re-implemented (PyG GCNConv)" in note for note in trainer.notes)
        got, want = trainer.gradients(1), get_system("reference").open(work).gradients(1)
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
@pytest.mark.parametrize("model", MODELS)
def test_the_arena_moves_what_is_counted_and_changes_no_bit(monkeypatch, name, model):
    data = tiny_sequence(weighted=FAMILY.index(name) % 2 == MODELS.index(model) % 2)
    serve(monkeypatch, data)
    plain, arena = (
        get_system(name).open(tiny_workload(model=model), switches={"arena": on})
        for on in (False, True)
    )
    for trainer in (plain, arena):
        trainer.prepare()
        trainer.meter.reset()
    for frame in (0, 2, 1, 2):
        assert arena.step(frame) == plain.step(frame)
    frames = [range(first, first + 4) for first in (0, 2, 1, 2)]
    want = sum(expected_bytes(name, model, data, frame) for frame in frames)
    moved = arena.meter.counters
    assert plain.meter.counters["bytes_h2d_counted"] == want
    assert "bytes_h2d_moved" not in plain.meter.counters
    assert moved["bytes_h2d_counted"] == moved["bytes_h2d_moved"] == want
    assert moved["transfers"] == 4 * len(frames)
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
