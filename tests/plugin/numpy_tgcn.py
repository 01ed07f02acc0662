"""A foreign contender: the T-GCN model and Adam in numpy, for an environment without dgbench."""

import numpy as np


def open_trainer(task):
    return NumpyTrainer(task)


class NumpyTrainer:
    def __init__(self, task):
        self.task, self.counters, self.kept = task, {}, {}
        self.values = {name: value.copy() for name, value in task.parameters.items()}
        self.adam = {name: np.zeros((2, *v.shape), v.dtype) for name, v in self.values.items()}
        self.updates = 0

    def step(self, frame):
        loss, gradients, _ = self._pass(frame)
        self.updates += 1
        rate = self.task.workload["lr"] / (1 - 0.9**self.updates)
        for name, g in gradients.items():
            first, second = self.adam[name]
            first += 0.1 * (g - first)
            second += 0.001 * (g * g - second)
            root = np.sqrt(second / (1 - 0.999**self.updates)) + 1e-8
            self.values[name] -= np.float32(rate) * first / root
        return loss

    def evaluate(self, frame):
        return self._pass(frame)[2]

    def gradients(self, frame):
        return self._pass(frame)[1]

    def state(self):
        return self.values

    def moments(self):
        return self.adam

    def _aggregated(self, t):
        """D^-1/2 (A + I) D^-1/2 X of a snapshot, made once."""
        if t not in self.kept:
            indptr, columns, weights = self.task.snapshot(t)
            rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
            weights = np.ones(len(columns), np.float32) if weights is None else weights
            scale = (1 + np.bincount(rows, weights, len(indptr) - 1)) ** -0.5
            x = self.task.features[t] * scale[:, None].astype(np.float32)
            total = x.copy()
            np.add.at(total, rows, weights[:, None] * x[columns])
            self.kept[t] = total * scale[:, None].astype(np.float32)
            count = self.counters.get("edges_aggregated", 0)
            self.counters["edges_aggregated"] = count + len(columns) + len(x)
        return self.kept[t]

    def _pass(self, frame):
        """Loss, its gradients and the last output of a frame."""
        p, times = self.values, self.task.frame(frame)
        every = self.task.workload["loss_on"] == "every"
        h = np.zeros((self.task.features.shape[1], p["conv_z.weight"].shape[1]), np.float32)
        tape, grad = [], {name: np.zeros_like(value) for name, value in p.items()}
        for t in times:
            a, before = self._aggregated(t), h
            z, z_in = self._gate("z", a, h)
            r, r_in = self._gate("r", a, h)
            c, c_in = self._gate("h", a, h * r)
            h = z * h + (1 - z) * c
            tape.append((t, a, before, z, z_in, r, r_in, c, c_in, h))
        loss, dh = 0.0, np.zeros_like(h)
        for t, a, before, z, z_in, r, r_in, c, c_in, out in reversed(tape):
            if every or t == times[-1]:
                share = 1 / len(times) if every else 1.0
                gap = (
                    out @ p["head.linear.weight"][0]
                    + p["head.linear.bias"]
                    - self.task.targets[t + 1]
                )
                loss += share * float(np.mean(gap * gap))
                d = np.float32(2 * share / len(gap)) * gap
                grad["head.linear.weight"] += d @ out
                grad["head.linear.bias"] += d.sum()
                dh = dh + np.outer(d, p["head.linear.weight"][0])
            dc = self._back("h", dh * (1 - z) * (1 - c * c), a, c_in, grad)
            dz = self._back("z", dh * (before - c) * z * (1 - z), a, z_in, grad)
            dr = self._back("r", dc * before * r * (1 - r), a, r_in, grad)
            dh = dh * z + dc * r + dz + dr
        return loss, grad, h

    def _gate(self, gate, a, h):
        p = self.values
        x = np.hstack([a @ p[f"conv_{gate}.weight"] + p[f"conv_{gate}.bias"], h])
        y = x @ p[f"linear_{gate}.weight"].T + p[f"linear_{gate}.bias"]
        return (np.tanh(y) if gate == "h" else 1 / (1 + np.exp(-y))), x

    def _back(self, gate, d, a, x, grad):
        """Adds a gate's gradients and returns that of its state."""
        grad[f"linear_{gate}.weight"] += d.T @ x
        grad[f"linear_{gate}.bias"] += d.sum(0, dtype=np.float64)
        dx = d @ self.values[f"linear_{gate}.weight"]
        dim = self.values[f"conv_{gate}.weight"].shape[1]
        grad[f"conv_{gate}.weight"] += a.T @ dx[:, :dim]
        grad[f"conv_{gate}.bias"] += dx[:, :dim].sum(0, dtype=np.float64)
        return dx[:, dim:]
