"""Scans whose products are split for tensor cores (3xTF32), against float64 and plain float32."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from dgbench.kernels_cuda.scan import gru_scan, lstm_scan, op, packed_gru_scan, packed_lstm_scan
from dgbench.kernels_cuda.scan.products import SWITCH, splits
from dgbench.runtime.errors import InvalidInputError

PLAIN, SPLIT = 0, 1
NAMES = {3: "gru", 4: "lstm"}
CASES = [  # steps, vertices, features, hidden, processors
    (1, 1, 1, 1, 1),
    (3, 1, 6, 6, 1),
    (16, 35, 6, 6, 1),
    (16, 17, 16, 32, 9),
    (3, 16, 9, 13, 9),
    (2, 700, 3, 7, 1),  # eight tiles of rows in a block
    (2, 33, 64, 64, 1),
    (120, 3, 2, 5, 1),
    (4, 18, 0, 8, 1),
    (0, 5, 3, 4, 1),
    (2, 0, 3, 4, 1),
]


@dataclass
class Frame:
    """Inputs of a scan and the gradients that come in, in float32 on the CPU."""

    gates: int
    given: list[Tensor]  # x, w_in, w_hid, bias and the first states
    incoming: list[Tensor]  # of h_all and of the last states

    @classmethod
    def drawn(cls, gates, steps, vertices, features, hidden, seed=0) -> Frame:
        generator = torch.Generator().manual_seed(seed + steps * 7 + vertices)
        width = gates * hidden
        shapes = [(steps, vertices, features), (features, width), (hidden, width), (width,)]
        shapes += [(vertices, hidden)] * (gates - 2)
        scales = [1, max(features, 1) ** -0.5, hidden**-0.5, 0.5, 1, 1]
        given = [
            torch.randn(shape, generator=generator) * scale
            for shape, scale in zip(shapes, scales, strict=False)
        ]
        shapes = [(steps, vertices, hidden)] + [(vertices, hidden)] * (gates - 2)
        return cls(gates, given, [torch.randn(s, generator=generator) for s in shapes])

    def exact(self) -> list[Tensor]:
        """States, last states and gradients of all inputs in float64."""
        leaves = [t.double().requires_grad_() for t in self.given]
        outputs = (gru_scan if self.gates == 3 else lstm_scan)(*leaves, all_steps=True)
        loss = sum((o * g).sum() for o, g in zip(outputs, self.incoming, strict=True))
        grads = torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
        return [*(o.detach() for o in outputs), *grads]

    def found(self, native, products: int) -> list[Tensor]:
        """The same of the device's scan."""
        put = [native.put(t) for t in self.given]
        (steps, vertices, features), hidden = put[0].shape, put[2].shape[0]
        sizes = (steps, vertices, features, hidden, self.gates, 4)
        record = native.poisoned(native.module.scan_record_size(*sizes))
        workspace = native.poisoned(native.module.scan_workspace_size(*sizes))
        outputs = [native.poisoned(*t.shape) for t in self.incoming]
        name = NAMES[self.gates]
        native.call(f"{name}_scan_forward", *put, *outputs, record, products=products)
        grads = [torch.full_like(t, math.nan) for t in put]
        incoming = [native.put(t) for t in self.incoming]
        native.call(
            f"{name}_scan_backward", *put, record, *incoming, *grads, workspace, products=products
        )
        return [t.cpu() for t in [*outputs, *grads]]


def deviation(found: Tensor, exact: Tensor) -> float:
    """Root mean square over all elements, relative to the largest; a single one may cancel."""
    if exact.numel() == 0:
        return 0.0
    scale = max(float(exact.abs().max()), 0.25)
    return float((found.double() - exact).square().mean().sqrt()) / scale


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


both_gates = pytest.mark.parametrize("gates", [3, 4], ids=["gru", "lstm"])


@both_gates
@pytest.mark.parametrize("case", CASES, ids=lambda c: "-".join(map(str, c)))
@pytest.mark.parametrize("order", ["forward", "reverse"])
def test_states_and_gradients_are_as_close_as_in_float32(split, gates, case, order, monkeypatch):
    *sizes, processors = case
    monkeypatch.setenv("EMULATED_PROCESSORS", str(processors))
    if order == "reverse":
        monkeypatch.setenv("EMULATED_ORDER", "reverse")
    frame = Frame.drawn(gates, *sizes)
    exact, plain, found = frame.exact(), frame.found(split, PLAIN), frame.found(split, SPLIT)
    for one, other, right in zip(found, plain, exact, strict=True):
        assert deviation(one, right) <= 3 * deviation(other, right) + 1e-7
        assert deviation(one, right) <= 1e-6


@both_gates
@pytest.mark.parametrize("badly_scaled", [False, True])
def test_single_products_of_tf32_are_far_worse(split, gates, badly_scaled):
    """Columns of x up to 2^12 apart from their neighbours, rows of weights the other way."""
    frame = Frame.drawn(gates, 12, 33, 10, 24)
    columns = torch.ones(10)
    if badly_scaled:
        columns = 2.0 ** torch.tensor([0, 12, -12, 6, -6, 9, -9, 3, -3, 0])
        frame.given[0] *= columns
        frame.given[1] /= columns[:, None]
        frame.given[2] *= 3
    exact = frame.exact()
    single = deviation(by_tf32(frame), exact[0])
    plain, found = ([*frame.found(split, products)] for products in (PLAIN, SPLIT))
    first = 1 + gates - 2  # of the gradients, which have the scales of others' inputs
    for results in (exact, plain, found):
        results[first] = results[first] * columns
        results[first + 1] = results[first + 1] / columns[:, None]
    for one, other, right in zip(found, plain, exact, strict=True):
        assert deviation(one, right) <= 3 * deviation(other, right)
        assert deviation(one, right) <= single / 200
        assert deviation(other, right) <= single / 200


@both_gates
def test_bits_do_not_depend_on_how_rows_are_shared_out(split, gates, monkeypatch):
    many = Frame.drawn(gates, 3, 300, 5, 8)
    few = Frame(gates, [*many.given], [*many.incoming])
    few.given[0], few.incoming[0] = many.given[0][:, :21], many.incoming[0][:, :21].contiguous()
    few.given[4:] = [t[:21].contiguous() for t in many.given[4:]]
    few.incoming[1:] = [t[:21].contiguous() for t in many.incoming[1:]]
    results = []
    for frame, processors in ((many, 1), (many, 9), (few, 9)):
        monkeypatch.setenv("EMULATED_PROCESSORS", str(processors))
        results.append(frame.found(split, SPLIT))
    assert all(map(torch.equal, results[0], results[1]))
    outputs = len(few.incoming)
    assert torch.equal(results[2][0], results[0][0][:, :21])
    for one, whole in zip(results[2][1:outputs], results[0][1:outputs], strict=True):
        assert torch.equal(one, whole[:21])
    assert torch.equal(results[2][outputs], results[0][outputs][:, :21])  # of x


@both_gates
def test_the_last_state_needs_no_others(split, gates):
    frame = Frame.drawn(gates, 16, 18, 3, 6)
    whole = frame.found(split, SPLIT)
    put = [split.put(t) for t in frame.given]
    last = [split.poisoned(18, 6) for _ in frame.incoming[1:]]
    split.call(f"{NAMES[gates]}_scan_forward", *put, None, *last, None, products=SPLIT)
    for one, kept in zip(last, whole[1:], strict=False):
        assert torch.equal(one.cpu(), kept)


@both_gates
@pytest.mark.parametrize("hidden", [5, 8])
def test_packed_rows(split, gates, hidden):
    steps, rows, features, starts = 7, 37, 3, 20
    frame = Frame.drawn(gates, steps, rows, features, hidden)
    generator = torch.Generator().manual_seed(4)
    begins = torch.where(torch.rand(steps, rows, generator=generator) < 0.3, -2, -1).int()
    place = torch.randperm(begins.numel(), generator=generator)[:starts]
    begins.view(-1)[place] = torch.arange(starts, dtype=torch.int32)
    states = [torch.randn(starts, hidden, generator=generator) for _ in range(gates - 2)]
    incoming = [torch.randn(steps, rows, hidden, generator=generator) for _ in states]

    leaves = [t.double().requires_grad_() for t in (*frame.given[:4], *states)]
    run = packed_gru_scan if gates == 3 else packed_lstm_scan
    exact = run(*leaves[:4], begins, *leaves[4:])
    exact = [exact] if gates == 3 else list(exact)
    loss = sum((o * g).sum() for o, g in zip(exact, incoming, strict=True))
    right = [*exact, *torch.autograd.grad(loss, leaves)]

    sizes = (steps, rows, features, hidden, gates, 4)
    record = split.poisoned(split.module.scan_record_size(*sizes))
    workspace = split.poisoned(split.module.scan_workspace_size(*sizes))
    absent = [None] * (gates - 2)
    given = [split.put(t) for t in frame.given[:4]] + absent
    named = {"begins": split.put(begins), "products": SPLIT}
    named |= {k: split.put(s) for k, s in zip(("h_starts", "c_starts"), states, strict=False)}
    outputs = [split.poisoned(steps, rows, hidden) for _ in states]
    last = [split.poisoned(rows, hidden) for _ in states]
    ends = {"c_all": outputs[1]} if gates == 4 else {}
    split.call(f"{NAMES[gates]}_scan_forward", *given, outputs[0], *last, record, **named, **ends)
    grads = [torch.full_like(t, math.nan) for t in given[:4]]
    to_starts = [torch.zeros_like(split.put(s)) for s in states]
    named |= {f"grad_{k}": g for k, g in zip(("h_starts", "c_starts"), to_starts, strict=False)}
    put = [split.put(g) for g in incoming]
    if gates == 4:
        named["grad_c_all"] = put[1]
    split.call(
        f"{NAMES[gates]}_scan_backward",
        *given, record, put[0], *absent, *grads, *absent, workspace, **named,
    )  # fmt: skip
    for found, wanted in zip([*outputs, *grads, *to_starts], right, strict=True):
        assert deviation(found.cpu(), wanted.detach()) <= 1e-6


@both_gates
@pytest.mark.parametrize(
    ("sizes", "setting"),
    [
        ((2, 5, 3, 65), {}),
        ((2, 5, 300, 64), {}),
        ((2, 5, 3, 8), {"EMULATED_CAPABILITY": "7"}),
        ((2, 5, 3, 32), {"EMULATED_SHARED": "9000"}),
    ],
    ids=["wide state", "wide input", "older device", "little shared memory"],
)
def test_where_they_do_not_fit_products_are_plain(native, gates, sizes, setting, monkeypatch):
    if native.device == "cuda" and setting:
        pytest.skip("settings of the emulator")
    assert native.device == "cuda" or bool(setting) == native.module.scan_splits(*sizes[2:], gates)
    for name, value in setting.items():
        monkeypatch.setenv(name, value)
    assert not native.module.scan_splits(*sizes[2:], gates)
    frame = Frame.drawn(gates, *sizes)
    assert all(map(torch.equal, frame.found(native, PLAIN), frame.found(native, SPLIT)))


def test_an_unknown_way_to_multiply_is_refused(native, monkeypatch):
    frame = Frame.drawn(3, 1, 2, 3, 4)
    with pytest.raises(ValueError, match="products is 2"):
        frame.found(native, 2)
    with pytest.raises(InvalidInputError, match="products is 'tf32'"):
        gru_scan(*frame.given, products="tf32")
    monkeypatch.setenv(SWITCH, "tf32")
    with pytest.raises(InvalidInputError, match=f"{SWITCH} is 'tf32'"):
        gru_scan(*frame.given)
    gru_scan(*frame.given, products="float32")


@both_gates
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("by", ["argument", "environment"])
def test_a_backward_pass_multiplies_as_its_forward_pass_did(gates, packed, by, monkeypatch):
    asked = []
    monkeypatch.setattr(op, "_multiplied", lambda x, products: asked.append(products) or {})
    named = {}
    if by == "argument":
        named["products"] = "3xtf32"
    else:
        monkeypatch.setenv(SWITCH, "3xtf32")
    frame = Frame.drawn(gates, 2, 3, 2, 4)
    leaves = [t.requires_grad_() for t in frame.given[:4]]
    if packed:
        run = packed_gru_scan if gates == 3 else packed_lstm_scan
        outputs = run(*leaves, torch.zeros(2, 3, dtype=torch.bool), **named)
        last = outputs if gates == 3 else outputs[0]
    else:
        last = (gru_scan if gates == 3 else lstm_scan)(*leaves, **named)[1]
    monkeypatch.delenv(SWITCH, raising=False)
    last.sum().backward()
    assert asked == [SPLIT, SPLIT]


@pytest.mark.cuda
@both_gates
def test_the_public_functions_use_them_on_a_device(gates, usable_device):
    frame = Frame.drawn(gates, 16, 170, 16, 32)
    leaves = [t.cuda().requires_grad_() for t in frame.given]
    if not splits(leaves[0], leaves[2]):
        pytest.skip("a device without these products")
    run = gru_scan if gates == 3 else lstm_scan
    results = []
    for products in ("float32", "3xtf32", "3xtf32"):
        outputs = run(*leaves, all_steps=True, products=products)
        incoming = [g.cuda() for g in frame.incoming]
        results.append([*outputs, *torch.autograd.grad(outputs, leaves, incoming)])
    assert all(map(torch.equal, results[1], results[2]))
    assert not torch.equal(results[0][0], results[1][0])
    for one, other, right in zip(results[1], results[0], frame.exact(), strict=True):
        assert deviation(one.cpu(), right) <= 3 * deviation(other.cpu(), right) + 1e-7
