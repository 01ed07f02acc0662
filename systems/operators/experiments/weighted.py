"""Weighted draws without replacement: half of n items in one call."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np
import torch

from dgbench.kernels_cuda.weighted import draw_without_replacement
from dgbench.lab.experiment import Preset
from dgbench.lab.result_checks import ResultCheck, at_most
from dgbench.systems.operators.race import OURS, Call, OperatorCase, OperatorRace

VARIANTS = ("sis", "its_bitmap", "alias", "reservoir")
MULTINOMIAL_ITEMS = 1 << 24
"""Items that `torch.multinomial` takes at most."""
SIZES = {"smoke": (1000,), "quick": (1000, 100_000), None: (1000, 10_000, 100_000, 1_000_000)}


class Weighted(OperatorRace):
    name = "weighted"
    title = "Drawing half of n items by weight, without replacement"
    question = "How fast are weighted draws without replacement, by the number of items?"
    reading = (
        "One thread, processor time. Each contender has the weights in the type that it likes "
        "best. Ours draws by keys; its other methods are raced by `tgcn/fig8`, too, draw by draw. "
        "On a device ours makes the same draws as on the CPU, and torch's forms are its rivals."
    )
    claims = ("operators-weighted-best-peer", "operators-weighted-million")
    devices = ("cpu", "cuda")
    threads = 1
    clock = staticmethod(time.process_time)
    slow_s = 0.5
    workloads = {
        preset: tuple(
            {"items": items, "weights": weights}
            for items in sizes
            for weights in ("power", "equal")
        )
        for preset, sizes in SIZES.items()
    }
    device_items = (100_000_000,)
    """Further sizes of the presets full and paper on a device."""
    label = "{items:,} items, {weights}"
    sweep = ("items", "items to draw from")
    panel = ("weights",)
    control: ClassVar = {"items": 100_000, "weights": "power"}

    def points(self, preset: Preset, device: str) -> Iterable[dict[str, Any]]:
        yield from super().points(preset, device)
        for items in self.device_items if device == "cuda" and preset not in SIZES else ():
            yield {"operator": self.name, "items": items, "weights": "power"}

    def case(self, params: Mapping[str, Any], preset: Preset, device: str) -> OperatorCase:
        n, k = params["items"], params["items"] // 2
        equal = params["weights"] == "equal"
        # A power law as of degrees (exponent 2.2).
        w = np.ones(n) if equal else np.random.default_rng(1).pareto(1.2, n) + 1
        rng, p, w32 = np.random.default_rng(2), w / w.sum(), w.astype(np.float32)
        t, t64 = torch.from_numpy(w32).to(device), torch.from_numpy(w).to(device)

        def numpy_keys(_: int) -> np.ndarray:
            return np.argpartition(rng.standard_exponential(n, dtype=np.float32) / w32, k)[:k]

        def ours(method: str, weights: torch.Tensor) -> Call:
            return lambda turn: draw_without_replacement(weights, k, method=method, stream=turn)

        host = device == "cpu"
        calls: dict[str, Call] = {
            OURS: ours("keys", t64 if host else t),
            f"{OURS}, float32": ours("keys", t),
            **{
                f"{OURS}, {method}": ours(method, t64)
                for method in (VARIANTS if host else ())
                if equal or method != "reservoir"
            },
        }
        peers: dict[str, Call] = {
            "numpy choice": lambda _: rng.choice(n, k, replace=False, p=p),
            "numpy keys": numpy_keys,
        } if host else {}  # fmt: skip
        peers |= {
            "torch exponential, topk": lambda _: (
                torch.empty(n, device=device).exponential_().div_(t)
                .topk(k, largest=False, sorted=False).indices
            ),
            "torch log, topk": lambda _: (
                torch.rand(n, device=device).log_().div_(t).topk(k, sorted=False).indices
            ),
        }  # fmt: skip
        if n <= MULTINOMIAL_ITEMS:
            peers["torch multinomial"] = lambda _: torch.multinomial(t, k)
        heavy = w > np.median(w) if not equal else np.arange(n) % 2 == 0
        expected = _expected_share(w, k, heavy)
        return OperatorCase(
            calls=calls | peers,
            check=lambda name, _, found: _check(on_host(found), n, k, heavy, expected),
            baselines=((OURS, tuple(peers)),),
            work=(("throughput", {"of": "items"}, n),),
        )


def on_host(found: np.ndarray | torch.Tensor) -> np.ndarray:
    """A draw as an array of the host."""
    return found.cpu().numpy() if isinstance(found, torch.Tensor) else np.asarray(found)


def _expected_share(w: np.ndarray, k: int, heavy: np.ndarray) -> float:
    """Share of drawn items that are heavy, over 16 draws of keys in float64 by numpy."""
    rng = np.random.default_rng(5)
    shares = []
    for _ in range(16):
        drawn = np.argsort(rng.standard_exponential(len(w)) / w)[:k]
        shares.append(heavy[drawn].mean())
    return float(np.mean(shares))


def _check(found: np.ndarray, n: int, k: int, heavy: np.ndarray, expected: float) -> ResultCheck:
    """k different items, of which a right share is heavy: within five deviations of it."""
    right = len(found) == k == len(np.unique(found)) and found.min() >= 0 and found.max() < n
    gap = abs(float(heavy[found].mean()) - expected) if right else math.inf
    return at_most(
        "samples", gap, 2.5 / math.sqrt(k) + 2.5 / math.sqrt(16 * k), against="draws by numpy",
        compared=k,
    )  # fmt: skip
