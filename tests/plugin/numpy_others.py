"""Foreign contenders in numpy on a stream (GraphSAGE of one hop) and on a timeline (TM-GCN)."""

import numpy as np
from numpy_tgcn import NumpyTrainer


def open_trainer(task):
    return {"stream": NumpySage, "timeline": NumpyTmGcn}[task.kind](task)


class NumpySage(NumpyTrainer):
    """One layer over the newest neighbours before an event's time; edges have both directions."""

    def __init__(self, task):
        super().__init__(task)
        ends = np.concatenate([task.src, task.dst]), np.concatenate([task.dst, task.src])
        times = np.concatenate([task.t, task.t])
        number = np.tile(np.arange(len(task.t)), 2)
        order = np.lexsort((number, times, ends[0]))
        self.owner, self.other, self.times = ends[0][order], ends[1][order], times[order]

    def _mean(self, node, time):
        """Mean features of the newest neighbours."""
        first, last = np.searchsorted(self.owner, [node, node + 1])
        last = first + np.searchsorted(self.times[first:last], time)
        near = self.other[max(first, last - self.task.workload["fanouts"][0]) : last]
        self.counters["targets"] = self.counters.get("targets", 0) + 1
        mean = self.task.node_feat[near].mean(0) if len(near) else 0 * self.task.node_feat[0]
        return mean.astype(np.float32)

    def _pass(self, frame):
        p, task = self.values, self.task
        events = task.frame(frame)
        part = slice(events.start, events.stop)
        nodes = np.concatenate([task.src[part], task.dst[part], task.negatives[part]])
        around = np.stack([self._mean(v, t) for v, t in zip(nodes, np.tile(task.t[part], 3))])  # noqa: B905
        own = task.node_feat[nodes]
        hidden = own @ p["layers.0.own.weight"].T + p["layers.0.own.bias"]
        hidden = np.maximum(hidden + around @ p["layers.0.others.weight"].T, 0)
        source, ends = hidden[: len(events)], hidden[len(events) :]
        joined = np.tile(source @ p["head.source.weight"].T + p["head.source.bias"], (2, 1))
        joined = np.maximum(joined + ends @ p["head.target.weight"].T, 0)
        logits = joined @ p["head.score.weight"][0] + p["head.score.bias"]
        sign = np.repeat(np.float32([-1, 1]), len(events))
        loss = np.mean(np.logaddexp(0, (sign * logits).astype(np.float64)))
        d = sign / (1 + np.exp(-sign * logits)) / np.float32(len(logits))
        dj = np.outer(d, p["head.score.weight"][0]) * (joined > 0)
        ds = dj[: len(events)] + dj[len(events) :]
        back = [ds @ p["head.source.weight"], dj @ p["head.target.weight"]]
        dh = np.concatenate(back) * (hidden > 0)
        grad = {
            "head.score.weight": (d @ joined)[None],
            "head.score.bias": d.sum(keepdims=True),
            "head.source.weight": ds.T @ source,
            "head.source.bias": ds.sum(0),
            "head.target.weight": dj.T @ ends,
            "layers.0.own.weight": dh.T @ own,
            "layers.0.own.bias": dh.sum(0),
            "layers.0.others.weight": dh.T @ around,
        }
        return loss, grad, hidden


class NumpyTmGcn(NumpyTrainer):
    """Two convolutions with an average over the last `window` snapshots between; task `node`."""

    def __init__(self, task):
        super().__init__(task)
        steps = len(task.frame(0))
        back = np.arange(steps)[:, None] - np.arange(steps)
        band = ((back >= 0) & (back < task.workload["window"])).astype(np.float32)
        self.average = band / band.sum(1, keepdims=True)
        self.dense = [self._dense(t) for t in task.frame(0)]

    def _dense(self, t):
        """D^-1/2 (A + I) D^-1/2 of a snapshot."""
        indptr, columns, weights = self.task.snapshot(t)
        count = len(indptr) - 1
        a = np.eye(count, dtype=np.float64)
        rows = np.repeat(np.arange(count), np.diff(indptr))
        np.add.at(a, (rows, columns), 1 if weights is None else weights)
        scale = a.sum(1) ** -0.5
        return (scale[:, None] * a * scale).astype(np.float32)

    def _pass(self, frame):
        p, times = self.values, self.task.frame(frame)
        first = [a @ self.task.features[t] for a, t in zip(self.dense, times)]  # noqa: B905
        inner = np.stack([np.maximum(x @ p["conv_1.weight"], 0) for x in first])
        mixed = np.tensordot(self.average, inner, 1)
        second = [a @ x for a, x in zip(self.dense, mixed)]  # noqa: B905
        out = np.stack([np.maximum(x @ p["conv_2.weight"], 0) for x in second])
        w = p["head.linear.weight"][0]
        gap = out @ w + p["head.linear.bias"] - self.task.targets
        loss = np.mean(gap.astype(np.float64) ** 2)
        d = np.float32(2 / gap.size) * gap
        grad = {
            "head.linear.weight": np.einsum("tn,tnh->h", d, out)[None],
            "head.linear.bias": d.sum(dtype=np.float64, keepdims=True)[0],
        }
        dx = d[:, :, None] * w * (out > 0)
        grad["conv_2.weight"] = sum(x.T @ g for x, g in zip(second, dx))  # noqa: B905
        dx = np.stack([a.T @ (g @ p["conv_2.weight"].T) for a, g in zip(self.dense, dx)])  # noqa: B905
        dx = np.tensordot(self.average.T, dx, 1) * (inner > 0)
        grad["conv_1.weight"] = sum(x.T @ g for x, g in zip(first, dx))  # noqa: B905
        entries = 2 * sum(int((a != 0).sum()) for a in self.dense)
        self.counters["edges_aggregated"] = self.counters.get("edges_aggregated", 0) + entries
        return loss, grad, out[-1]
