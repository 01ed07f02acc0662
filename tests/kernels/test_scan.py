"""GRU and LSTM scans over frames and packed rows, against plain loops over the steps."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from device_fixtures import PLACES, Native, open_place
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kernel_checks import close, refuses, same_bits
from torch import Tensor

from dgbench.kernels_cuda.scan import (
    CONTINUES,
    FROM_ZERO,
    gru_scan,
    lstm_scan,
    op,
    packed_gru_scan,
    packed_lstm_scan,
)
from dgbench.kernels_cuda.scan import packed as packed_op
from dgbench.kernels_cuda.scan.products import PRODUCTS, SPLIT, SWITCH, splits
from dgbench.runtime.errors import InvalidInputError

SCANS = ("gru", "lstm")
both = pytest.mark.parametrize("scan", SCANS)


@pytest.fixture(params=["cpu", *PLACES])
def place(request, monkeypatch) -> Native:
    """Where scans work: with a record of the forward pass where they are a device's."""
    native = open_place(request.param, request, monkeypatch)(op, packed_op)
    if native.device == "cpu" and not native.own:
        size = native.module.scan_record_size

        def record(x: Tensor, w_hid: Tensor, gates: int, keep: bool) -> Tensor:
            return x.new_empty(size(*op._sizes(x, w_hid, gates)) if keep else 0)

        monkeypatch.setattr(op, "_record", record)
        monkeypatch.setattr(op, "_multiplied", lambda x, products: {"products": products})
    return native


def gru_loop(x, w_in, w_hid, bias, h0):
    """h of every step, [T + 1, N, H] with h0 first."""
    hidden = w_hid.shape[0]
    states = [h0]
    for row in x:
        h, from_x = states[-1], row @ w_in + bias
        gates = torch.sigmoid(from_x[:, : 2 * hidden] + h @ w_hid[:, : 2 * hidden])
        z, r = gates[:, :hidden], gates[:, hidden:]
        c = torch.tanh(from_x[:, 2 * hidden :] + (r * h) @ w_hid[:, 2 * hidden :])
        states.append(z * h + (1 - z) * c)
    return torch.stack(states)


def lstm_loop(x, w_in, w_hid, bias, h0, c0):
    """h of every step, [T + 1, N, H], and the last c."""
    states, c = [h0], c0
    for row in x:
        i, f, g, o = (row @ w_in + states[-1] @ w_hid + bias).chunk(4, dim=1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        states.append(torch.sigmoid(o) * torch.tanh(c))
    return torch.stack(states), c


def make(scan, steps, n, features, hidden, *, seed=0, dtype=torch.float32):
    """Inputs in the order of the scan's arguments."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape, scale=1.0):
        return torch.randn(*shape, generator=generator, dtype=torch.float64).mul(scale).to(dtype)

    columns = (3 if scan == "gru" else 4) * hidden
    inputs = [
        draw(steps, n, features),
        draw(features, columns, scale=max(features, 1) ** -0.5),
        draw(hidden, columns, scale=hidden**-0.5),
        draw(columns, scale=0.3),
        draw(n, hidden),
    ]
    return inputs if scan == "gru" else [*inputs, draw(n, hidden)]


def fused(scan, inputs, **how):
    """(h_all, h_last[, c_last]) of the operator."""
    return (gru_scan if scan == "gru" else lstm_scan)(*inputs, all_steps=True, **how)


def looped(scan, inputs):
    """The same of the loop."""
    if scan == "gru":
        states = gru_loop(*inputs)
        return states[1:], states[-1]
    states, c = lstm_loop(*inputs)
    return states[1:], states[-1], c


def run(function, scan, inputs, *more):
    """Outputs, then gradients of a weighted sum of them with respect to all inputs."""
    leaves = [t.detach().requires_grad_() for t in inputs]
    outputs = function(scan, leaves, *more)
    weights = torch.Generator().manual_seed(1)
    loss = sum(
        (o * torch.randn(o.shape, generator=weights, dtype=torch.float64).to(o)).sum()
        for o in outputs
    )
    grads = torch.autograd.grad(loss, leaves, materialize_grads=True, allow_unused=True)
    return [o.detach() for o in outputs], list(grads)


@both
@settings(max_examples=20, deadline=None)
@example(90, 1500, 6, 24, 0)  # more vertices than a block of a shard, more steps than a block
@given(
    steps=st.integers(0, 7),
    n=st.one_of(st.integers(0, 14), st.sampled_from([25, 48, 97, 200, 901])),
    features=st.sampled_from([1, 2, 3, 8, 16, 17, 33, 64]),
    hidden=st.sampled_from([1, 5, 6, 7, 16, 21, 32, 48, 64, 80]), seed=st.integers(0, 2**20),
)  # fmt: skip
def test_matches_loop(scan, steps, n, features, hidden, seed):
    """In float32 with at most twice the error of plain torch, over a floor of a few roundings.

    A gradient that is a sum of terms of both signs can come out far smaller than its terms, whose
    rounding it keeps, so the norm of all tensors of a kind counts.
    """
    inputs = make(scan, steps, n, features, hidden, seed=seed)
    plain, doubles = run(looped, scan, inputs), [t.double() for t in inputs]
    exact = run(looped, scan, doubles)
    for ours, right in zip(run(fused, scan, doubles), exact, strict=True):
        close(ours, right, 1e-11)
    for ours, theirs, right in zip(run(fused, scan, inputs), plain, exact, strict=True):
        whole = float(torch.cat([t.flatten() for t in right]).norm())
        for a, b, c in zip(ours, theirs, right, strict=True):
            assert a.shape == c.shape
            size, error = float(c.norm()), float((a.double() - c).norm())
            limit = 2 * float((b.double() - c).norm()) + 5e-7 * (size + whole) + 1e-12
            assert error <= min(limit, 1e-5 * max(size, whole / 10) + 1e-12)


@both
def test_strided_x_is_read_in_place(place, scan):
    """A permuted [N, T, F], a slice of wider rows, features apart (which are copied), repeats."""
    steps, n, features = 6, 40, 8
    x, *rest = (place.put(t) for t in make(scan, steps, n, features, 16))
    wide = place.poisoned(2 * steps, n, features + 5)
    wide[::2, :, 3 : 3 + features] = x
    for form in (
        x.permute(1, 0, 2).contiguous().permute(1, 0, 2),
        wide[::2, :, 3 : 3 + features],
        x.permute(2, 0, 1).contiguous().permute(1, 2, 0),
        x[:1].expand(steps, n, features),
    ):
        expected = run(fused, scan, [form.contiguous(), *rest])
        for ours, right in zip(run(fused, scan, [form, *rest]), expected, strict=True):
            close(ours, right, 0 if place.own else 1e-6)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_gates_saturate_and_keep_small_digits(sign):
    """Around 88.4 e^x leaves float32; the grid is finer than the rounding of its exponent."""
    ends = torch.tensor([0.0, 1e-30, 1e-8, 3e-4, 0.02, 0.4, 3.0, 9.0, 40.0, 1e3, 1e10, 3e38])
    x = sign * torch.cat([ends, torch.linspace(80, 95, 3001)])
    rows = x.view(1, -1, 1)
    for count, expected in (
        (3, lambda v: (1 - torch.sigmoid(v)) * torch.tanh(v)),
        (4, lambda v: torch.sigmoid(v) * torch.tanh(torch.sigmoid(v) * torch.tanh(v))),
    ):
        weights = torch.ones(1, 16 * count), torch.zeros(16, 16 * count), torch.zeros(16 * count)
        h = fused("gru" if count == 3 else "lstm", [rows, *weights])[0][0]
        right = expected(x.double())[:, None].expand_as(h)
        torch.testing.assert_close(h.double(), right, rtol=1e-6, atol=1e-7)
    # Weights that lead the value straight into tanh: z = 1/2, c = tanh(x).
    w_in = torch.tensor([[0.0, 0.0, 1.0]])
    _, h = gru_scan(rows, w_in, torch.zeros(1, 3), torch.zeros(3))
    torch.testing.assert_close(h[:, 0].double(), 0.5 * x.double().tanh(), rtol=3e-7, atol=0)


@both
def test_only_the_wanted_gradients_as_often_as_wanted(place, scan):
    """Weights only (as in a first layer), then x only; states absent mean zero."""
    inputs = [place.put(t) for t in make(scan, 4, 30, 3, 8)]
    zero = [torch.zeros_like(t) for t in inputs[4:]]
    call = gru_scan if scan == "gru" else lstm_scan

    def gradients(wanted, states):
        leaves = [t.detach().clone().requires_grad_(i in wanted) for i, t in enumerate(inputs[:4])]
        h_all, h_last, *_ = call(*leaves, *states, all_steps=False)
        assert h_all is None
        chosen, loss = [leaves[i] for i in wanted], h_last.square().sum()
        first = torch.autograd.grad(loss, chosen, retain_graph=True)
        same_bits([first, torch.autograd.grad(loss, chosen)])
        return first

    everything = gradients(range(4), zero)
    for wanted in ((1, 2, 3), (0,), (2,)):
        right = [everything[i] for i in wanted]
        close(gradients(wanted, []), right, 0 if place.own else 1e-6)


def test_mistakes_are_named(monkeypatch):
    names = ("x", "w_in", "w_hid", "bias", "h0")
    refuses(
        gru_scan, dict(zip(names, make("gru", 2, 4, 3, 5), strict=True)),
        ("x", torch.zeros(4, 3)), ("x", torch.zeros(2, 4, 3, dtype=torch.int64)),
        ("w_in", torch.zeros(5, 15)), ("w_hid", torch.zeros(5, 20)), ("bias", torch.zeros(5)),
        ("h0", torch.zeros(3, 5)), ("bias", torch.zeros(15).double()), ("h0", [[0.0]]),
        ("products", "tf32"),
    )  # fmt: skip
    monkeypatch.setenv(SWITCH, "tf32")
    with pytest.raises(InvalidInputError, match=SWITCH):
        gru_scan(*make("gru", 1, 2, 3, 4))


# --- Packed rows ---------------------------------------------------------------------------------


def packed(scan, leaves, begins, **how):
    """h (and c) of every step, of inputs and the states that sequences begin from."""
    if scan == "gru":
        return [packed_gru_scan(*leaves[:4], begins, *leaves[4:], **how)]
    return list(packed_lstm_scan(*leaves[:4], begins, *leaves[4:], **how))


def alone(scan, leaves, begins):
    """The same: each sequence cut out and run by the plain loop."""
    x, weights, states = leaves[0], leaves[1:4], leaves[4:]
    steps, n, hidden = x.shape[0], x.shape[1], weights[1].shape[0]
    columns = []
    if not steps * n:
        return [x.new_zeros(steps, n, hidden) + 0 * x.sum()] * len(states)
    for v in range(n):
        pieces = []
        cuts = [t for t in range(steps) if t == 0 or begins[t, v] != CONTINUES]
        for first, last in zip(cuts, [*cuts[1:], steps], strict=True):
            k = int(begins[first, v])
            own = [s[k : k + 1] if k >= 0 else x.new_zeros(1, hidden) for s in states]
            rows = x[first:last, v : v + 1]
            if scan == "gru":
                pieces.append([gru_loop(rows, *weights, *own)[1:]])
            else:
                # The loop gives the last cell only, so c of each step is that of a shorter run.
                h = lstm_loop(rows, *weights, *own)[0][1:]
                c = [lstm_loop(rows[: i + 1], *weights, *own)[1] for i in range(last - first)]
                pieces.append([h, torch.stack(c)])
        columns.append([torch.cat(part) for part in zip(*pieces, strict=True)])
    return [torch.cat(part, dim=1) for part in zip(*columns, strict=True)]


def draw_case(scan, steps, n, features, hidden, starts, seed, dtype=torch.float32):
    """Inputs with states to begin from, and int32[T, N]: go on, from zero, or from a row each."""
    inputs = make(scan, steps, n, features, hidden, seed=seed, dtype=dtype)[:4]
    states = make(scan, steps, starts, features, hidden, seed=seed + 1, dtype=dtype)[4:]
    generator = torch.Generator().manual_seed(seed + 1)
    begins = torch.full((steps, n), CONTINUES, dtype=torch.int32)
    begins[torch.rand(steps, n, generator=generator) < 0.4] = FROM_ZERO
    place = torch.randperm(steps * n, generator=generator)[:starts]
    which = torch.randperm(starts, generator=generator)[: place.numel()]
    begins.view(-1)[place] = which.to(torch.int32)
    return [*inputs, *states], begins


@both
@pytest.mark.parametrize(("dtype", "bar"), [(torch.float64, 1e-12), (torch.float32, 1e-6)])
@settings(max_examples=12, deadline=None)
@given(
    steps=st.integers(1, 7), n=st.sampled_from([1, 2, 11, 13, 25]),
    features=st.sampled_from([1, 3, 8, 17]), hidden=st.sampled_from([1, 5, 16, 33]),
    starts=st.integers(0, 9), seed=st.integers(0, 2**20),
)  # fmt: skip
def test_equals_every_sequence_alone(scan, dtype, bar, steps, n, features, hidden, starts, seed):
    leaves, begins = draw_case(scan, steps, n, features, hidden, starts, seed, torch.float64)
    exact = run(alone, scan, leaves, begins)
    ours = run(packed, scan, [t.to(dtype) for t in leaves], begins)
    for kind, right in zip(ours, exact, strict=True):
        close(kind, right, bar)


def test_packed_mistakes_are_named():
    for steps, n in ((0, 4), (3, 0)):
        none = packed_lstm_scan(*make("lstm", steps, n, 2, 3)[:4], torch.zeros(steps, n).int())
        assert [part.shape for part in none] == [(steps, n, 3)] * 2
    x, w_in, w_hid, bias, h = draw_case("gru", 2, 2, 3, 5, 3, 1)[0]
    begins = torch.tensor([[0, -1], [1, -1]], dtype=torch.int32)
    right = {"x": x, "w_in": w_in, "w_hid": w_hid, "bias": bias, "begins": begins, "h_starts": h}
    wrong = ([[-3, -1], [-1, -1]], [[0, -1], [3, -1]], [[0, -1], [-1, 0]])
    refuses(
        packed_gru_scan, right, ("begins", [[0, 0], [1, 0]]), ("h_starts", h.double()),
        ("begins", torch.zeros(2, 3, dtype=torch.int32)), ("begins", torch.zeros(2, 2)),
        *(("begins", torch.tensor(one, dtype=torch.int32)) for one in wrong),
    )  # fmt: skip
    begins[0, 1] = 7  # written to after a call: looked at again
    with pytest.raises(InvalidInputError, match="begins"):
        packed_gru_scan(**right)
    *lstm, h, c = draw_case("lstm", 2, 2, 3, 5, 3, 1)[0]
    for starts in ((h,), (h, c[:2])):
        with pytest.raises(InvalidInputError, match="c_starts"):
            packed_lstm_scan(*lstm, torch.zeros(2, 2, dtype=torch.bool), *starts)


# --- A device's, with split products (3xTF32) -----------------------------------------------------


NAMES = {3: "gru", 4: "lstm"}
CASES = [  # steps, vertices, features, hidden, shared memory, processors
    (1, 1, 1, 1, None, 1), (3, 5, 4, 8, None, 9), (4, 37, 3, 5, None, 9), (2, 70, 16, 40, None, 1),
    (3, 70, 5, 8, 8000, 1),  # wide tiles, weights read through the caches
    (3, 20, 5, 24, 6000, 1),  # small tiles, weights read through the caches
    (40, 30, 2, 4, None, 1),  # more than one part of the weight gradients
    (2, 700, 3, 7, None, 1),  # eight tiles of rows in a block
    (16, 17, 16, 32, None, 9), (2, 33, 64, 64, None, 1), (120, 3, 2, 5, None, 1),
    (4, 18, 0, 8, None, 1), (0, 5, 3, 4, None, 1), (2, 0, 3, 4, None, 1),
]  # fmt: skip
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

    @classmethod
    def drawn(cls, gates, steps, vertices, features, hidden, *, packed=False) -> Frame:
        scan, begins, last = NAMES[gates], None, [(vertices, hidden)] * (gates - 2)
        shape, seed = (steps, vertices, features, hidden), steps * 7 + vertices
        if packed:
            given, begins = draw_case(scan, *shape, steps * vertices // 4, seed)
            last = [(steps, vertices, hidden)] * (gates - 3)
        else:
            given = make(scan, *shape, seed=seed)  # in memory the vertices are outermost
            given[0] = given[0].transpose(0, 1).contiguous().transpose(0, 1)
        draw = torch.Generator().manual_seed(seed)
        outputs = [(steps, vertices, hidden), *last]
        return cls(gates, given, [torch.randn(*one, generator=draw) for one in outputs], begins)

    def exact(self) -> list[Tensor]:
        """States of every step and the last, and gradients of all inputs, in float64."""
        leaves, scan = [t.double().requires_grad_() for t in self.given], NAMES[self.gates]
        outputs = looped(scan, leaves) if self.begins is None else alone(scan, leaves, self.begins)
        loss = sum((o * g).sum() for o, g in zip(outputs, self.incoming, strict=True))
        grads = torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
        return [*(o.detach() for o in outputs), *grads]

    def run(self, place: Native, products: str) -> list[Tensor]:
        """The same in float32, where `place` says."""
        leaves = [place.put(t).detach().requires_grad_() for t in self.given]
        more = () if self.begins is None else (place.put(self.begins),)
        scan = packed if more else fused
        outputs = scan(NAMES[self.gates], leaves, *more, products=products)
        incoming = [place.put(g) for g in self.incoming]
        options = {"allow_unused": True, "materialize_grads": True}
        grads = torch.autograd.grad(outputs, leaves, incoming, **options)
        return [t.detach().cpu() for t in (*outputs, *grads)]


def deviation(one: Tensor, exact: Tensor) -> float:
    """Root mean square over all elements, relative to the largest; a single one may cancel."""
    if exact.numel() == 0:
        return 0.0
    scale = max(float(exact.abs().max()), 0.25)
    return float((one.double() - exact).square().mean().sqrt()) / scale


@both_gates
@pytest.mark.parametrize("place", PLACES, indirect=True)
@pytest.mark.parametrize("case", CASES, ids=lambda c: "-".join(map(str, c)))
@pytest.mark.parametrize("packed", [False, True], ids=["rows", "packed"])
def test_states_and_gradients(place, emulate, gates, case, packed):
    """Split products are as near to float64 as those in float32."""
    *sizes, shared, processors = case
    emulate(shared=shared, processors=processors)
    frame = Frame.drawn(gates, *sizes, packed=packed)
    exact, plain, other = frame.exact(), *(frame.run(place, how) for how in PRODUCTS)
    for one, two, right in zip(plain, other, exact, strict=True):
        assert deviation(one, right) <= 1e-6
        assert deviation(two, right) <= 3 * deviation(one, right) + 1e-7


@both_gates
@pytest.mark.parametrize("place", PLACES, indirect=True)
def test_split_products_keep_their_digits_between_scales(place, gates):
    """Columns of x up to 2^12 apart from their neighbours, rows of weights the other way."""
    frame = Frame.drawn(gates, 12, 33, 10, 24)
    columns = 2.0 ** torch.tensor([0, 12, -12, 6, -6, 9, -9, 3, -3, 0])
    frame.given[0] = frame.given[0] * columns
    frame.given[1] /= columns[:, None]
    frame.given[2] *= 3
    results = exact, plain, other = frame.exact(), *(frame.run(place, how) for how in PRODUCTS)
    first = 1 + gates - 2  # of the gradients, which have the scales of others' inputs
    for one in results:
        one[first] = one[first] * columns
        one[first + 1] = one[first + 1] / columns[:, None]
    for one, two, right in zip(plain, other, exact, strict=True):
        assert deviation(one, right) <= 1e-6  # single products of TF32 are at 1e-4
        assert deviation(two, right) <= 3 * deviation(one, right)


@both_gates
@pytest.mark.parametrize("place", PLACES, indirect=True)
def test_bits_do_not_depend_on_how_rows_are_shared_out(place, emulate, gates):
    many = Frame.drawn(gates, 3, 300, 5, 8)
    few = Frame(gates, [*many.given], [*many.incoming])
    few.given[0], few.incoming[0] = many.given[0][:, :21], many.incoming[0][:, :21].contiguous()
    few.given[4:] = [t[:21].contiguous() for t in many.given[4:]]
    few.incoming[1:] = [t[:21].contiguous() for t in many.incoming[1:]]
    results = []
    for frame, processors in ((many, 1), (many, 9), (few, 9)):
        emulate(processors=processors)
        results.append(frame.run(place, SPLIT))
    assert all(map(torch.equal, results[0], results[1]))
    outputs = len(few.incoming)
    assert torch.equal(results[2][0], results[0][0][:, :21])
    for one, whole in zip(results[2][1:outputs], results[0][1:outputs], strict=True):
        assert torch.equal(one, whole[:21])
    assert torch.equal(results[2][outputs], results[0][outputs][:, :21])  # of x


@both_gates
@pytest.mark.parametrize(
    ("sizes", "setting"),
    [((2, 5, 3, 65), {}), ((2, 5, 300, 64), {}),  # wide; old or small devices
     ((2, 5, 3, 8), {"capability": 7}), ((2, 5, 3, 32), {"shared": 9000})],
)  # fmt: skip
@pytest.mark.parametrize("place", PLACES[:1], indirect=True)
def test_where_they_do_not_fit_products_are_plain(place, emulate, gates, sizes, setting):
    assert bool(setting) == place.module.scan_splits(*sizes[2:], gates)
    emulate(**setting)
    assert not place.module.scan_splits(*sizes[2:], gates)
    frame = Frame.drawn(gates, *sizes)
    assert all(map(torch.equal, *(frame.run(place, how) for how in PRODUCTS)))


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
