"""`dgbench calibrate SYSTEM`: measure once what a system wants to know of this machine."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import typer

from dgbench.harness.cli.values import path_option


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("calibrate", short_help="Measure what a system must know of this machine.")(
        calibrate
    )


def calibrate(
    system: str = typer.Argument(..., help="A system's name, see `dgbench list systems`."),
    device: str = typer.Option("cpu", "--device", help="cpu or cuda."),
    quick: bool = typer.Option(False, "--quick", help="A coarse table, in less than a minute."),
    threads: int = typer.Option(0, "--threads", help="Default: as many as runs use.", min=0),
    out: Path = path_option("--out", "File to write instead of the one in the cache."),
    as_json: bool = typer.Option(False, "--json", help="The result as JSON."),
) -> None:
    """Measure this machine for a system and keep the result where the system looks for it.

    Nothing else should run meanwhile. A result that was there before is replaced at the end.

    Example: dgbench calibrate pipad --quick
    """
    import torch

    from dgbench.harness.terminal.text import say, say_json
    from dgbench.runtime.errors import DgbenchError, UnsupportedError
    from dgbench.runtime.threads import default_threads
    from dgbench.systems.base import get_system
    from dgbench.systems.base.calibration import calibration_path

    if device not in ("cpu", "cuda"):
        raise DgbenchError(f"--device is '{device}', allowed: cpu, cuda")
    found = get_system(system)
    if device == "cuda" and not torch.cuda.is_available():
        raise UnsupportedError("there is no CUDA device here", hint="use --device cpu")
    torch.set_num_threads(threads or default_threads())
    path = out if out is not None else calibration_path(found.name, device)
    progress = _ProgressLine(found.title)
    start = time.perf_counter()
    try:
        summary = found.calibrate(path, device=device, quick=quick, progress=progress.update)
    finally:
        progress.close()
    result = {
        "system": found.name,
        "device": device,
        "path": str(path),
        "seconds": round(time.perf_counter() - start, 2),
        **summary,
    }
    if as_json:
        say_json(result)
    else:
        say(_text(found.title, result))


class _ProgressLine:
    """One line on stderr: redrawn on a terminal, else a line for every tenth of the work."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._live = sys.stderr.isatty()
        self._shown = -1.0
        self._open = False

    def update(self, done: int, total: int, words: str) -> None:
        """Say how far it is."""
        share = done / total if total else 1.0
        if self._live:
            line = f"calibrating {self._title} {100 * share:4.0f} %  {words}"
            print(f"\r{line[:100]:100}", end="", file=sys.stderr, flush=True)
            self._open = True
        elif share >= self._shown + 0.1 or self._shown < 0:
            self._shown = share
            print(f"calibrating {self._title} {100 * share:.0f} %", file=sys.stderr)

    def close(self) -> None:
        """End the line that is being redrawn."""
        if self._open:
            print(file=sys.stderr)
            self._open = False


def _text(title: str, result: dict[str, Any]) -> str:
    from dgbench.harness.terminal.text import table

    lines = [f"{title} on {result['device']}, {result['seconds']:.1f} s"]
    for key, value in result.items():
        if key in ("system", "device", "path", "seconds"):
            continue
        if isinstance(value, list) and value and isinstance(value[0], dict):
            header = [str(name) for name in value[0]]
            rows = [[_shown(row.get(name)) for name in value[0]] for row in value]
            lines += ["", f"{key}:", table(header, rows, set(range(len(header))))]
        else:
            lines.append(f"  {key}: {_shown(value)}")
    return "\n".join([*lines, "", f"kept in {result['path']}"])


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k} {_shown(v)}" for k, v in value.items())
    return f"{value:.3g}" if isinstance(value, float) else str(value)
