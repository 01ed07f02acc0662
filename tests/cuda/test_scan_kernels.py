"""Scans of a device, plain and packed, in float32 and split for tensor cores (3xTF32)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import pytest
import torch
from device_cases import close
from torch import Tensor

from dgbench.kernels_cuda.scan import gru_scan, lstm_scan, op, packed_gru_scan, packed_lstm_scan
from dgbench.kernels_cuda.scan.products import SWITCH, splits
from dgbench.runtime.errors import InvalidInputError

PLAIN, SPLIT = 0, 1
NAMES = {3: "gru", 4: "lstm"}
CASES = [  # steps, vertices, features, hidden, shared memory, processors
    (1, 1, 1, 1, None, 1),
    (3, 5, 4, 8, None, 9),
    (4, 37, 3, 5, None, 9),
    (2, 70, 16, 40, None, 1),
    (3, 70, 5, 8, 8000, 1),  # wide tiles, weights read through the caches
    (3, 20, 5, 24, 6000, 1),  # small tiles, weights read through the caches
    (40, 30, 2, 4, None, 1),  # more than one part of the weight gradients
    (16, 17, 16, 32, None, 9),
    (2, 700, 3, 7, None, 1),  # eight tiles of rows in a block
    (2, 33, 64, 64, None, 1),
    (120, 3, 2, 5, None, 1),
    (4, 18, 0, 8, None, 1),
    (0, 5, 3, 4, None, 1),
    (2, 0, 3, 4, None, 1),
]
both_gates = pytest.mark.parametrize("gates", [3, 4], ids=["gru", "lstm"])


@dataclass
class Frame:
    """Inputs of a scan and the gradients that come in, in float32 on the CPU.

    Attributes:
        given: x, w_in, w_hid, bias and the first states.
        incoming: of h_all and of the last states; of h_all and c_all where rows are packed.
        begins: of packed rows: where sequences begin, at zeros (-2) or at a row of the states.
    """

    gates: int
    given: list[Tensor]
    incoming: list[Tensor]
    begins: Tensor | None = None
    names: tuple[str, ...] = field(default=("h_starts", "c_starts"))

    @classmethod
    def drawn(cls, gates, steps, vertices, features, hidden, *, packed=False) -> Frame:
        generator = torch.Generator().manual_seed(steps * 7 + vertices)

        def draw(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator)

        width, begins, states = gates * hidden, None, [(vertices, hidden)] * (gates - 2)
        x = draw(vertices, steps, features).transpose(0, 1)  # a view: vertices outermost in memory
        given = [x, draw(features, width) * max(features, 1) ** -0.5]
        given += [draw(hidden, width) * hidden**-0.5, draw(width) * 0.5]
        incoming = [(steps, vertices, hidden), *states]
        if packed:
            x = given[0] = x.contiguous()
            begins = torch.where(torch.rand(steps, vertices, generator=generator) < 0.3, -2, -1)
            starts = begins.numel() // 4
            place = torch.randperm(begins.numel(), generator=generator)[:starts]
            begins.view(-1)[place] = torch.arange(starts)
            states = [(starts, hidden)] * (gates - 2)
            incoming = [(steps, vertices, hidden)] * (gates - 2)
        given += [draw(*shape) for shape in states]
        begins = None if begins is None else begins.int()
        return cls(gates, given, [draw(*shape) for shape in incoming], begins)

    def exact(self) -> list[Tensor]:
        """States of every step and the last, and gradients of all inputs, in float64."""
        leaves = [t.double().requires_grad_() for t in self.given]
        if self.begins is None:
            outputs = (gru_scan if self.gates == 3 else lstm_scan)(*leaves, all_steps=True)
        else:
            run = packed_gru_scan if self.gates == 3 else packed_lstm_scan
            outputs = run(*leaves[:4], self.begins, *leaves[4:])
            outputs = (outputs,) if self.gates == 3 else outputs
        loss = sum((o * g).sum() for o, g in zip(outputs, self.incoming, strict=True))
        grads = torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
        return [*(o.detach() for o in outputs), *grads]

    def run(self, native, products: int) -> list[Tensor]:
        """The same of the device's scan; what it leaves out is NaN."""
        put = [native.put(t) for t in self.given]
        (steps, vertices, features), hidden = put[0].shape, put[2].shape[0]
        sizes, name = (steps, vertices, features, hidden, self.gates, 4), NAMES[self.gates]
        record = native.poisoned(native.module.scan_record_size(*sizes))
        workspace = native.poisoned(native.module.scan_workspace_size(*sizes))
        outputs = [native.poisoned(*t.shape) for t in self.incoming]
        incoming = [native.put(t) for t in self.incoming]
        grads = [torch.full_like(t, math.nan) for t in put]
        forward, back = {"products": products}, {"products": products}
        if self.begins is None:
            given, first, to_given = [*put], outputs, grads
        else:
            absent = [None] * (self.gates - 2)  # states and gradients of single rows
            given, states = put[:4] + absent, dict(zip(self.names, put[4:], strict=False))
            forward |= states | {"begins": native.put(self.begins)}
            back |= forward
            for leaf, n in zip(grads[4:], self.names, strict=False):
                back[f"grad_{n}"] = leaf.zero_()
            if self.gates == 4:
                forward["c_all"], back["grad_c_all"] = outputs[1], incoming[1]
            first = [outputs[0], *(native.poisoned(vertices, hidden) for _ in absent)]
            incoming, to_given = [incoming[0], *absent], grads[:4] + absent
        native.call(f"{name}_scan_forward", *given, *first, record, **forward)
        native.call(
            f"{name}_scan_backward", *given, record, *incoming, *to_given, workspace, **back
        )
        return [t.cpu() for t in [*outputs, *grads]]


def deviation(one: Tensor, exact: Tensor) -> float:
    """Root mean square over all elements, relative to the largest; a single one may cancel."""
    if exact.numel() == 0:
        return 0.0
    scale = max(float(exact.abs().max()), 0.25)
    return float((one.double() - exact).square().mean().sqrt()) / scale


def tf32(x: Tensor) -> Tensor:
    """The nearest numbers of 11 significant bits."""
    bits = x.float().contiguous().view(torch.int32)
    return ((bits + 0x1000) & ~0x1FFF).view(torch.float32).double()


def by_tf32(frame: Frame) -> Tensor:
    """States of every step from products of operands in tf32, added and all else in float64."""
    x, w_in, w_hid, bias, h, *c = (t.double() for t in frame.given)
    states, hidden = [], h.shape[1]
    for step in x:
        a = tf32(step) @ tf32(w_in) + bias
        if frame.gates == 3:
            a[:, : 2 * hidden] += tf32(h) @ tf32(w_hid)[:, : 2 * hidden]
            z, r = torch.sigmoid(a[:, : 2 * hidden]).chunk(2, 1)
            n = torch.tanh(a[:, 2 * hidden :] + tf32(r * h) @ tf32(w_hid)[:, 2 * hidden :])
            h = z * h + (1 - z) * n
        else:
            i, f, g, o = (a + tf32(h) @ tf32(w_hid)).chunk(4, 1)
            c[0] = torch.sigmoid(f) * c[0] + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c[0])
        states.append(h)
    return torch.stack(states)


@pytest.fixture
def split(native):
    """The compiled functions, on a device whose tensor cores they use."""
    if native.device == "cuda" and not native.module.scan_splits(8, 8, 3):
        pytest.skip("a device without these products")
    return native


@both_gates
@pytest.mark.parametrize("case", CASES, ids=lambda c: "-".join(map(str, c)))
@pytest.mark.parametrize("packed", [False, True], ids=["rows", "packed"])
@pytest.mark.usefixtures("order")
def test_states_and_gradients(native, emulate, gates, case, packed):
    """Split products are as close to float64 as those in float32."""
    *sizes, shared, processors = case
    emulate(shared=shared, processors=processors)
    frame = Frame.drawn(gates, *sizes, packed=packed)
    exact, plain, other = frame.exact(), frame.run(native, PLAIN), frame.run(native, SPLIT)
    for one, two, right in zip(plain, other, exact, strict=True):
        assert deviation(one, right) <= 1e-6
        assert deviation(two, right) <= 3 * deviation(one, right) + 1e-7


@both_gates
@pytest.mark.parametrize("badly_scaled", [False, True])
def test_single_products_of_tf32_are_far_worse(split, gates, badly_scaled):
    """Columns of x up to 2^12 apart from their neighbours, rows of weights the other way."""
    frame = Frame.drawn(gates, 12, 33, 10, 24)
    columns = torch.ones(10)
    if badly_scaled:
        columns = 2.0 ** torch.tensor([0, 12, -12, 6, -6, 9, -9, 3, -3, 0])
        frame.given[0] = frame.given[0] * columns
        frame.given[1] /= columns[:, None]
        frame.given[2] *= 3
    exact = frame.exact()
    single = deviation(by_tf32(frame), exact[0])
    plain, other = (frame.run(split, products) for products in (PLAIN, SPLIT))
    first = 1 + gates - 2  # of the gradients, which have the scales of others' inputs
    for results in (exact, plain, other):
        results[first] = results[first] * columns
        results[first + 1] = results[first + 1] / columns[:, None]
    for one, two, right in zip(plain, other, exact, strict=True):
        assert deviation(two, right) <= 3 * deviation(one, right)
        assert max(deviation(one, right), deviation(two, right)) <= single / 200


@both_gates
def test_bits_do_not_depend_on_how_rows_are_shared_out(split, emulate, gates):
    many = Frame.drawn(gates, 3, 300, 5, 8)
    few = Frame(gates, [*many.given], [*many.incoming])
    few.given[0], few.incoming[0] = many.given[0][:, :21], many.incoming[0][:, :21].contiguous()
    few.given[4:] = [t[:21].contiguous() for t in many.given[4:]]
    few.incoming[1:] = [t[:21].contiguous() for t in many.incoming[1:]]
    results = []
    for frame, processors in ((many, 1), (many, 9), (few, 9)):
        emulate(processors=processors)
        results.append(frame.run(split, SPLIT))
    assert all(map(torch.equal, results[0], results[1]))
    outputs = len(few.incoming)
    assert torch.equal(results[2][0], results[0][0][:, :21])
    for one, whole in zip(results[2][1:outputs], results[0][1:outputs], strict=True):
        assert torch.equal(one, whole[:21])
    assert torch.equal(results[2][outputs], results[0][outputs][:, :21])  # of x


@both_gates
@pytest.mark.parametrize("products", [PLAIN, SPLIT])
def test_what_is_optional_may_be_left_out(native, gates, products):
    """No states but the last and no record; a gradient of the last state only and of w_hid only."""
    frame = Frame.drawn(gates, 16, 18, 3, 6)
    frame.incoming = [torch.zeros_like(g) for g in frame.incoming[:1]] + frame.incoming[1:]
    whole = frame.run(native, products)
    put, name = [native.put(t) for t in frame.given], NAMES[gates]
    last = [native.poisoned(18, 6) for _ in frame.incoming[1:]]
    native.call(f"{name}_scan_forward", *put, None, *last, None, products=products)
    for one, kept in zip(last, whole[1:], strict=False):
        assert torch.equal(one.cpu(), kept)
    sizes = (16, 18, 3, 6, gates, 4)
    record = native.poisoned(native.module.scan_record_size(*sizes))
    workspace = native.poisoned(native.module.scan_workspace_size(*sizes))
    native.call(f"{name}_scan_forward", *put, None, *last, record, products=products)
    up, to_w = [native.put(g) for g in frame.incoming[1:]], torch.full_like(put[2], math.nan)
    given = [*up, None, None, to_w, None, *[None] * len(last), workspace]
    native.call(f"{name}_scan_backward", *put, record, None, *given, products=products)
    close(to_w, whole[len(frame.incoming) + 2])
    with pytest.raises(ValueError, match="record"):
        native.call(f"{name}_scan_backward", *put, None, None, *given)


@both_gates
@pytest.mark.parametrize(
    ("sizes", "setting"),
    [
        ((2, 5, 3, 65), {}),
        ((2, 5, 300, 64), {}),
        ((2, 5, 3, 8), {"capability": 7}),
        ((2, 5, 3, 32), {"shared": 9000}),
    ],
    ids=["wide state", "wide input", "older device", "little shared memory"],
)
def test_where_they_do_not_fit_products_are_plain(native, emulate, gates, sizes, setting):
    if native.device == "cuda" and setting:
        pytest.skip("settings of the emulator")
    assert native.device == "cuda" or bool(setting) == native.module.scan_splits(*sizes[2:], gates)
    emulate(**setting)
    assert not native.module.scan_splits(*sizes[2:], gates)
    frame = Frame.drawn(gates, *sizes)
    assert all(map(torch.equal, frame.run(native, PLAIN), frame.run(native, SPLIT)))


def test_an_unknown_way_to_multiply_is_refused(native, monkeypatch):
    frame = Frame.drawn(3, 1, 2, 3, 4)
    with pytest.raises(ValueError, match="products"):
        frame.run(native, 2)
    with pytest.raises(InvalidInputError, match="products"):
        gru_scan(*frame.given, products="tf32")
    monkeypatch.setenv(SWITCH, "tf32")
    with pytest.raises(InvalidInputError, match=SWITCH):
        gru_scan(*frame.given)
    gru_scan(*frame.given, products="float32")


@both_gates
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("by", ["argument", "environment"])
def test_a_backward_pass_multiplies_as_its_forward_pass_did(gates, packed, by, monkeypatch):
    asked: list[int] = []
    monkeypatch.setattr(op, "_multiplied", lambda x, products: asked.append(products) or {})
    named = {"products": "3xtf32"} if by == "argument" else {}
    if by == "environment":
        monkeypatch.setenv(SWITCH, "3xtf32")
    leaves = [t.requires_grad_() for t in Frame.drawn(gates, 2, 3, 2, 4).given[:4]]
    if packed:
        run = packed_gru_scan if gates == 3 else packed_lstm_scan
        outputs = run(*leaves, torch.zeros(2, 3, dtype=torch.bool), **named)
        last = outputs if gates == 3 else outputs[0]
    else:
        last = (gru_scan if gates == 3 else lstm_scan)(*leaves, **named)[1]
    monkeypatch.delenv(SWITCH, raising=False)
    last.sum().backward()
    assert asked == [SPLIT, SPLIT]


@pytest.mark.parametrize("states", [True, False])
def test_gates_that_are_made_again_in_parts_add_up_to_the_whole(native, monkeypatch, states):
    frame = Frame.drawn(4, 3, 23, 4, 5)
    given = [native.put(t) for t in frame.given]
    if not states:
        frame.given[4:] = [torch.zeros(23, 5), torch.zeros(23, 5)]
        given[4:] = [None, None]
    exact = frame.exact()[3:]
    monkeypatch.setattr(op, "MIN_PART", 8)
    monkeypatch.setattr(op, "MAX_PARTS", 3)
    if native.device == "cpu":
        size = native.module.scan_record_size
        monkeypatch.setattr(op, "extension", lambda device: native.module)
        monkeypatch.setattr(op, "call", lambda name, device, *a: native.call(name, *a))
        monkeypatch.setattr(
            op, "_record", lambda x, w, gates, keep: x.new_empty(size(*op._sizes(x, w, gates)))
        )
    needed = [t is not None for t in given]
    grads = op._grads(given[0], given[1:], needed)
    up = tuple(native.put(g) for g in frame.incoming)
    op._lstm_backward_in_parts(up, tuple(given), grads, needed)
    for one, right, wanted in zip(grads, exact, needed, strict=True):
        assert not wanted or deviation(one.cpu(), right) <= 1e-6


@pytest.mark.cuda
@both_gates
@pytest.mark.parametrize("sizes", [(16, 170, 16, 32), (4, 9001, 6, 8), (12, 700, 64, 128)])
def test_the_public_functions_on_a_device(gates, sizes, usable_device):
    frame = Frame.drawn(gates, *sizes)
    leaves = [t.cuda().requires_grad_() for t in frame.given]
    run = gru_scan if gates == 3 else lstm_scan
    ways = [{"products": "float32"}, {"products": "3xtf32"}, {"products": "3xtf32"}]
    ways += [{"recompute": True}] if gates == 4 else []
    results, peaks, incoming = [], [], [g.cuda() for g in frame.incoming]
    for how in ways:
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        outputs = run(*leaves, all_steps=True, **how)
        results.append([*outputs, *torch.autograd.grad(outputs, leaves, incoming)])
        peaks.append(torch.cuda.max_memory_allocated() - before)
    assert all(map(torch.equal, results[1], results[2]))
    assert splits(leaves[0], leaves[2]) != torch.equal(results[0][0], results[1][0])
    exact = frame.exact()
    for number, result in enumerate(results):
        for one, two, right in zip(result, results[0], exact, strict=True):
            assert deviation(one.cpu(), right) <= 3 * deviation(two.cpu(), right) + 1e-7, number
            assert deviation(two.cpu(), right) <= 1e-5
    assert gates == 3 or sizes[1] < 9000 or peaks[3] < peaks[0]
