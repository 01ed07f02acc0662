"""`python -m dgbench.harness.device_session`: one call of a device session, or its plan.

Called by `scripts/gpu_run.sh session`, which installs dgbench before and brings the parcel home.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
from pathlib import Path

from dgbench.harness.device_session.planned import plan_text
from dgbench.harness.device_session.session import DeviceSession, kept_rows, restore
from dgbench.harness.device_session.units import read_commands
from dgbench.harness.machine import gpu_count
from dgbench.harness.plugins import get_paper
from dgbench.harness.terminal.errors import say_error
from dgbench.runtime.errors import DgbenchError

PAPERS = ("pipad", "tgcn", "gnnflow", "dgc", "esdg")


def main(arguments: list[str] | None = None) -> int:
    """Run; 0 when something is left or all is done, 1 when a command failed, 2 for a mistake."""
    parser = argparse.ArgumentParser(prog="device_session", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="of the session; made where it is missing")
    parser.add_argument("--seconds", type=float, default=540.0, help="of this call")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--preset", default="quick")
    parser.add_argument("--papers", nargs="*", default=list(PAPERS))
    parser.add_argument("--commands", type=Path, help="plan of commands (YAML)")
    parser.add_argument("--estimates", type=Path, help="folder of kept runs, for times")
    parser.add_argument("--restore", type=Path, help="session.tar.gz to begin from")
    parser.add_argument("--dry-run", action="store_true", help="print the plan, run nothing")
    options = parser.parse_args(arguments)
    try:
        with contextlib.ExitStack() as stack:
            return _call(options, stack)
    except DgbenchError as error:
        say_error(error)
        return 2


def _call(options: argparse.Namespace, stack: contextlib.ExitStack) -> int:
    if options.seconds <= 0:
        raise DgbenchError(f"--seconds is {options.seconds:g}, it must be above 0")
    folder = options.folder
    if options.restore is not None and not (folder / "session.json").exists():
        restore(options.restore, folder)
    if options.dry_run and not (folder / "session.json").exists():
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    session = DeviceSession(
        folder=folder,
        papers=[get_paper(name) for name in options.papers],
        commands=read_commands(options.commands) if options.commands else [],
        device=options.device,
        preset=options.preset,
        gpus=1 if options.dry_run else gpu_count(),
        commit=os.environ.get("DGBENCH_COMMIT", ""),
        earlier=kept_rows(options.estimates) if options.estimates else (),
    )
    if options.dry_run:
        print(plan_text(session.units(), options.seconds))
        return 0
    print(plan_text(session.run(options.seconds), options.seconds))
    return int(any(c.state == "failed" for c in session.state.commands.values()))


if __name__ == "__main__":
    sys.exit(main())
