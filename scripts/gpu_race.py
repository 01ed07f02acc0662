"""Races PiPAD on a device against the PyG-Temporal family, all in one process, in turns.

Quicker than `dgbench run pipad/fig10`, which gives every measurement a process of its own: here a
workload takes seconds, so that all of them fit in minutes. Every round times each contender once on
consecutive frames; ratios are formed within rounds. The losses of the first frame are compared, and
a contender whose loss is another is not timed.

One JSON line per contender and workload goes to --out, a table to standard output.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from dgbench import datasets
from dgbench.runtime.errors import DgbenchError
from dgbench.runtime.meter import Meter
from dgbench.runtime.statistics import median, paired_ratio
from dgbench.systems.base import Trainer, get_system
from dgbench.systems.pipad.experiments.settings import BY_NAME, EPOCHS, MODELS, workload

BASELINE = "pygt"
LOSS_TOLERANCE = 1e-4
"""Relative; single-precision batch norm of the released cell loses digits, see Figure 10."""

WRONG = "first loss"

ORDER = (
    "pems08", "covid19-england", "hepth", "epinions", "flickr", "youtube", "amz-automotive",
)  # fmt: skip


@dataclass
class Contender:
    """A system with a setting, and what is found of it on one workload."""

    name: str
    system: str
    switches: dict[str, bool] = field(default_factory=dict)
    trainer: Trainer | None = None
    failed: str = ""
    prepare_s: float = 0.0
    loss: float | None = None
    step_s: list[float] = field(default_factory=list)
    counters: dict[str, float] = field(default_factory=dict)
    report: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def end_to_end_s(self) -> float:
        return self.prepare_s + EPOCHS * self.trainer.num_frames * median(self.step_s)


def contenders(device: str) -> list[Contender]:
    """The family, and PiPAD with CUDA graphs on and off."""
    family = [Contender(name, name) for name in ("pygt", "pygt-a", "pygt-r", "pygt-g")]
    mine = [Contender("pipad", "pipad")]
    known = {t.name for t in get_system("pipad").techniques}
    for name in ("cuda_graphs", "pipeline"):
        if name in known and device == "cuda":
            mine.append(Contender(f"pipad, {name} off", "pipad", {name: False}))
    return family + mine


def open_all(device: str, graph: str, model: str, preset: str) -> list[Contender]:
    """Contenders ready to train, with a first frame trained on; or with the reason why not."""
    task = workload(BY_NAME[graph], model, preset)  # type: ignore[arg-type]
    found = contenders(device)
    for one in found:
        system = get_system(one.system)
        try:
            if reasons := system.unsupported(task, device):
                one.failed = "; ".join(reasons)
                continue
            meter = Meter(device=device)
            one.trainer = system.open(task, device=device, switches=one.switches, meter=meter)
            start = time.perf_counter()
            one.trainer.prepare()
            synchronise(device)
            one.prepare_s = time.perf_counter() - start
            one.loss = one.trainer.step(0)
            for frame in (1, 2):  # graphs are captured and buffers grow here
                one.trainer.step(frame % one.trainer.num_frames)
        except (DgbenchError, RuntimeError) as error:
            one.failed = f"{type(error).__name__}: {error}"
    expected = next((c.loss for c in found if not c.failed), None)
    for one in found:
        if not one.failed and not abs(one.loss - expected) <= LOSS_TOLERANCE * abs(expected):
            one.failed = f"{WRONG}: {one.loss:.8g} differs from {expected:.8g}"
    return found


def race(found: list[Contender], *, device: str, rounds: int, turn_s: float) -> None:
    """Time every contender once a round, on consecutive frames, in an order that turns."""
    running = [c for c in found if not c.failed]
    frames = {id(c): 3 for c in running}
    steps = {id(c): max(1, int(turn_s / max(_one_step(c), 1e-6))) for c in running}
    for one in running:
        one.trainer.meter.reset()
        one.counters["counted_steps"] = 0
    for number in range(rounds):
        turn = number % max(1, len(running))
        for one in running[turn:] + running[:turn]:
            count = min(steps[id(one)], 200)
            synchronise(device)
            start = time.perf_counter()
            for _ in range(count):
                loss = one.trainer.enqueue(frames[id(one)] % one.trainer.num_frames)
                frames[id(one)] += 1
            loss.wait()
            synchronise(device)
            one.step_s.append((time.perf_counter() - start) / count)
            one.counters["counted_steps"] += count
    for one in running:
        one.counters |= dict(one.trainer.meter.counters)
        one.counters |= {f"{k}_s": v for k, v in one.trainer.meter.spent.items()}
        one.report = dict(one.trainer.report())
        one.notes = list(getattr(one.trainer, "notes", []))


def _one_step(one: Contender) -> float:
    start = time.perf_counter()
    one.trainer.step(2 % one.trainer.num_frames)
    return time.perf_counter() - start


def synchronise(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def lines_of(found: list[Contender], graph: str, model: str, preset: str) -> list[dict[str, Any]]:
    """A JSON line per contender, with ratios to the baseline."""
    base = next(c for c in found if c.name == BASELINE)
    lines = []
    for one in found:
        line = {k: v for k, v in asdict_of(one).items() if k != "trainer"}
        line |= {"dataset": graph, "model": model, "preset": preset}
        if not one.failed:
            line |= {"step_median_s": median(one.step_s), "end_to_end_s": one.end_to_end_s}
            line["nodes"] = one.trainer.data.num_nodes
            if not base.failed:
                ratio = paired_ratio(base.step_s, one.step_s)
                line["speedup"], line["low"], line["high"] = ratio.value, ratio.low, ratio.high
                line["end_to_end_speedup"] = base.end_to_end_s / one.end_to_end_s
        lines.append(line)
    return lines


def asdict_of(one: Contender) -> dict[str, Any]:
    trainer, one.trainer = one.trainer, None
    try:
        return asdict(one)
    finally:
        one.trainer = trainer


def shown(line: dict[str, Any]) -> str:
    where = f"{line['dataset']:16}{line['model']:12}{line['preset']:7}{line['name']:26}"
    if line["failed"]:
        return f"{where}{line['failed'][:90]}"
    text = f"{where}{1e3 * line['step_median_s']:10.3f} ms"
    if "speedup" in line:
        text += f"{line['speedup']:9.2f}x"
        if line["low"] is not None:
            text += f" [{line['low']:.2f}, {line['high']:.2f}]"
        text += f"{line['end_to_end_speedup']:9.2f}x end to end"
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, help="file for the rows, one JSON a line")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--preset", action="append", help="one after the other (default: quick)")
    parser.add_argument("--datasets", nargs="*", default=list(ORDER), choices=ORDER)
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=MODELS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--turn", type=float, default=0.03, help="seconds of a turn to aim for")
    parser.add_argument("--seconds", type=float, default=240, help="begin nothing after this long")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("torch sees no CUDA device; nothing to race")
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    end = time.monotonic() + options.seconds
    # Contenders of all models read the same snapshots; they are made once.
    datasets.open_snapshots = functools.lru_cache(maxsize=1)(datasets.open_snapshots)
    wrong = run_all(options, end, lambda text: print(text, flush=True))
    sys.exit(1 if wrong else 0)


def run_all(options: argparse.Namespace, end: float, say: Callable[[str], None]) -> int:
    """Race every workload while there is time; returns how many contenders gave a wrong loss."""
    wrong = 0
    for preset in options.preset or ["quick"]:
        for graph in options.datasets:
            for model in options.models:
                if time.monotonic() > end:
                    say(f"{graph:16}{model:12}{preset:7}out of time")
                    continue
                found = open_all(options.device, graph, model, preset)
                race(found, device=options.device, rounds=options.rounds, turn_s=options.turn)
                with open(options.out, "a") as file:
                    for line in lines_of(found, graph, model, preset):
                        file.write(json.dumps(line) + "\n")
                        say(shown(line))
                wrong += sum(c.failed.startswith(WRONG) for c in found)
                for one in found:
                    if one.trainer is not None:
                        one.trainer.close()
                del found
                if options.device == "cuda":
                    torch.cuda.empty_cache()
    return wrong


if __name__ == "__main__":
    main()
