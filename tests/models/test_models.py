"""The shared networks against their equations written out with plain matrices."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from dense_frames import DenseFrame
from hypothesis import given, settings
from hypothesis import strategies as st

from dgbench.models import MODEL_NAMES, build_model
from dgbench.models.ctdg import build_stream_model
from dgbench.models.heads import NodeHead
from dgbench.models.streaming import Dygnn, build_interaction_model
from dgbench.runtime.errors import InvalidInputError, UnknownKeyError
from dgbench.systems.base.interactions import InteractionWorkload
from dgbench.systems.base.stream_data import StreamWorkload


def build(name: str, **fields):
    return build_model(name, feature_dim=3, hidden_dim=5, frame=4, **fields).double()


def sigmoid(x):
    return 1 / (1 + torch.exp(-x))


@settings(deadline=None, max_examples=15)
@given(
    st.integers(1, 4), st.integers(1, 5), st.integers(1, 4), st.integers(1, 6), st.integers(0, 99)
)
def test_folded_gcn_gru_is_a_plain_gru(steps, nodes, width, hidden, seed):
    model = build_model("tgcn_model", feature_dim=width, hidden_dim=hidden, seed=seed).double()
    frame = DenseFrame.drawn(steps, nodes, width, seed)
    w_in, w_hid, bias = model.folded_weights()
    (wz, wr, wc), (uz, ur, uc) = w_in.chunk(3, 1), w_hid.chunk(3, 1)
    bz, br, bc = bias.chunk(3)
    h = torch.zeros(nodes, hidden, dtype=torch.float64)
    for t, want in enumerate(model.forward_frame(frame, range(steps))):
        a = frame.first(t)
        z, r = sigmoid(a @ wz + h @ uz + bz), sigmoid(a @ wr + h @ ur + br)
        c = torch.tanh(a @ wc + (r * h) @ uc + bc)
        h = z * h + (1 - z) * c
        torch.testing.assert_close(h, want)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_evolving_weights_follow_the_equations(cell):
    model = build("evolvegcn", cell=cell)
    for layer in (model.layer_1, model.layer_2):
        own = layer.cell
        weight, memory = layer.initial, torch.zeros_like(layer.initial)
        for got in layer.evolve(3):
            x = weight @ own.weight_ih.t() + own.bias_ih
            u = weight @ own.weight_hh.t() + own.bias_hh
            if cell == "gru":
                (xr, xz, xn), (ur, uz, un) = x.chunk(3, 1), u.chunk(3, 1)
                z = sigmoid(xz + uz)
                new = torch.tanh(xn + sigmoid(xr + ur) * un)
                weight = (1 - z) * new + z * weight
            else:
                i, f, g, o = (x + u).chunk(4, 1)
                memory = sigmoid(f) * memory + sigmoid(i) * torch.tanh(g)
                weight = sigmoid(o) * torch.tanh(memory)
            torch.testing.assert_close(got, weight)


@pytest.mark.parametrize("batch_norm", [True, False])
def test_mpnn_lstm_follows_the_equations(batch_norm):
    model = build("mpnn_lstm", batch_norm=batch_norm)
    frame = DenseFrame.drawn(4, 6, 3, 0)

    def after(x, norm):  # [W, N, H]
        x = x.clamp(min=0)
        if not batch_norm:
            return x
        mean, spread = x.mean(dim=(0, 1)), x.var(dim=(0, 1), unbiased=False)
        return (x - mean) / (spread + 1e-5).sqrt() * norm.weight + norm.bias

    a = torch.stack([frame.first(t) for t in range(4)])
    x1 = after(a @ model.conv_1.weight + model.conv_1.bias, model.norm_1)
    a2 = torch.stack([frame.matrices[t] @ x1[t] for t in range(4)])
    x2 = after(a2 @ model.conv_2.weight + model.conv_2.bias, model.norm_2)
    sequence = torch.cat([x1, x2], dim=2)
    states = []
    for w_in, w_hid, bias in model.scan_weights():
        h = c = torch.zeros(6, 5, dtype=torch.float64)
        steps = []
        for x in sequence:
            i, f, g, o = (x @ w_in + h @ w_hid + bias).chunk(4, 1)
            c = sigmoid(f) * c + sigmoid(i) * torch.tanh(g)
            h = sigmoid(o) * torch.tanh(c)
            steps.append(h)
        sequence = torch.stack(steps)
        states.append(sequence)
    outputs = model.forward_frame(frame, range(4))
    assert all(out.shape == (6, model.output_dim) for out in outputs)
    for t, out in enumerate(outputs):
        torch.testing.assert_close(out[:, :10], torch.cat([states[0][t], states[1][t]], dim=1))
    x = frame.features
    skip = torch.cat([x[0], x[1][:, -1:], x[2][:, -1:], x[3][:, -1:]], dim=1)
    assert torch.equal(outputs[-1][:, 10:], skip)
    later = torch.zeros(6, 2, dtype=torch.float64)  # columns of snapshots to come
    assert torch.equal(outputs[1][:, 10:], torch.cat([x[0], x[1][:, -1:], later], dim=1))


def stream_model(**fields):
    sizes = dict.fromkeys(("node_dim", "edge_dim", "hidden_dim", "time_dim", "memory_dim"), 4)
    return build_stream_model(
        StreamWorkload(**{"dataset": "none", "model": "tgn"} | sizes | fields)
    )


def interaction_model(**fields):
    return build_interaction_model(InteractionWorkload(dataset="none", hidden_dim=4, **fields))


BUILDERS = {
    **{
        f"{name}, {task}": partial(build_model, name, feature_dim=3, hidden_dim=5, task=task)
        for name in MODEL_NAMES
        for task in ("node", "link")
    },
    "stream": stream_model,
    "interactions": interaction_model,
}


@pytest.mark.parametrize("kind", BUILDERS)
def test_building_is_seeded_and_leaves_the_global_state(kind):
    torch.manual_seed(123)
    want = torch.rand(3)
    torch.manual_seed(123)
    a, b, c = (BUILDERS[kind](seed=seed).state_dict() for seed in (7, 7, 8))
    assert torch.equal(torch.rand(3), want)
    assert a.keys() == b.keys() == c.keys()
    assert all(torch.equal(a[key], b[key]) for key in a)
    assert any(not torch.equal(a[key], c[key]) for key in a)


def test_building_tells_what_is_wrong():
    plain = partial(build_model, feature_dim=2)
    for error, build_wrong in (
        (UnknownKeyError, lambda: plain("mpnn-lstm", hidden_dim=2)),
        (UnknownKeyError, lambda: plain("evolvegcn", hidden_dim=2, task="edge")),
        (UnknownKeyError, lambda: plain("evolvegcn", hidden_dim=2, cell="rnn")),
        (InvalidInputError, lambda: plain("tgcn_model", hidden_dim=0)),
        (UnknownKeyError, lambda: stream_model(model="tgnn")),
        (UnknownKeyError, lambda: Dygnn(4, decay="linear")),
        (UnknownKeyError, lambda: Dygnn(4, activation="relu")),
    ):
        with pytest.raises(error):
            build_wrong()


def test_link_head_is_a_mean_cross_entropy_and_tells_directions_apart():
    head = build_model("tgcn_model", feature_dim=2, hidden_dim=3, task="link").head
    hidden = torch.randn(4, 3, generator=torch.Generator().manual_seed(3))
    pairs, label = torch.tensor([[0, 1, 1, 3], [1, 0, 1, 2]]), torch.tensor([1.0, 0.0, 0.0, 1.0])
    logits = head(hidden, pairs)
    assert not torch.equal(logits[0], logits[1])
    p = sigmoid(logits)
    want = -(label * p.log() + (1 - label) * (1 - p).log()).mean()
    torch.testing.assert_close(head.loss(hidden, pairs, label), want)
    empty = head.loss(hidden, pairs[:, :0], label[:0])
    assert float(empty.detach()) == 0
    empty.backward()  # a snapshot without edges must not break a training step


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 5, 4), (2, 0, 3)])
def test_the_node_head_of_a_frame_equals_one_snapshot_at_a_time(shape):
    torch.manual_seed(1)
    head = NodeHead(shape[2]).double()
    frame = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    separate = torch.stack([head(snapshot) for snapshot in frame])
    torch.testing.assert_close(head(frame), separate)
    if frame.numel():
        assert torch.autograd.gradcheck(lambda f: head(f), frame)
    weights = torch.randn(shape[:2], dtype=torch.float64)
    wanted = torch.autograd.grad((separate * weights).sum(), [frame, *head.parameters()])
    found = torch.autograd.grad((head(frame) * weights).sum(), [frame, *head.parameters()])
    torch.testing.assert_close(found, wanted)
