"""The `dgbench` command.

Commands import what they need when they are called, so that `--help` and completion are quick.
Results go to stdout, progress and warnings to stderr. A mistake of the user ends with `error:`, a
hint and exit code 2, never with a traceback unless `--debug` asks for one.
"""

from __future__ import annotations

import errno
import importlib
import logging
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

import typer

from dgbench.harness.cli import (
    claiming,
    clustered,
    comparing,
    exporting,
    hosting,
    listing,
    racing,
    repeating,
    reporting,
    running,
    sharing,
    tracking,
)
from dgbench.harness.cli.help_pages import fit_help
from dgbench.harness.signals import signals_unwind
from dgbench.harness.terminal.text import UNWRITTEN, lose_output
from dgbench.runtime.errors import DgbenchError

app = typer.Typer(
    name="dgbench",
    help="Race systems that train graph networks on dynamic graphs, and check the papers' claims.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for module in (
    listing, running, racing, repeating, clustered, hosting, claiming, comparing, tracking,
    reporting, exporting, sharing,
):  # fmt: skip
    module.register(app)


def _attach(module_name: str, name: str) -> None:
    """Add another file's command or sub-commands; one that does not load is said, not fatal."""
    try:
        module = importlib.import_module(f"dgbench.harness.cli.{module_name}")
    except ImportError as error:
        reason = f"{type(error).__name__}: {error}"

        def broken() -> None:
            raise DgbenchError(f"'dgbench {name}' cannot be loaded: {reason}")

        app.command(name, help="(cannot be loaded)")(broken)
        return
    if hasattr(module, "app"):
        app.add_typer(module.app, name=name)
    elif hasattr(module, "register"):
        module.register(app)
    else:
        app.command(name)(getattr(module, name))


_attach("data", "data")
_attach("doctor", "doctor")
_attach("calibrating", "calibrate")


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"dgbench {version('dgbench')}")
        raise typer.Exit


@app.callback()
def _common(
    debug: bool = typer.Option(False, "--debug", help="Show tracebacks and debug messages."),
    version: bool = typer.Option(
        False, "--version", help="Show the version and exit.", callback=_version, is_eager=True
    ),
) -> None:
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.DEBUG if debug else logging.WARNING,
        format="%(levelname)s %(name)s: %(message)s" if debug else "warning: %(message)s",
    )
    for loud in ("matplotlib", "fontTools", "PIL"):
        logging.getLogger(loud).setLevel(logging.WARNING)


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point. Exits with a code of the table in docs/command-line.md."""
    _refuse_closed_output()
    os.environ["MPLBACKEND"] = "agg"  # only files are drawn, whatever a notebook sets
    try:
        _run(argv)
    except KeyboardInterrupt:
        print("Stopped.", file=sys.stderr)
        raise SystemExit(130) from None
    finally:
        if argv is None and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # Python's end would print a traceback


def _refuse_closed_output() -> None:
    """End where an output is closed: the next file that is opened would get what is printed."""
    if sys.stdout is None or sys.stderr is None:
        name = "output" if sys.stdout is None else "error"
        open_stream = sys.stderr or sys.stdout
        if open_stream is not None:
            said = f"the standard {name} is closed; send it to /dev/null if nobody reads it"
            print(f"error: {said}", file=open_stream)
        raise SystemExit(2)


def _run(argv: Sequence[str] | None) -> None:
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    # The switch may stand anywhere: people add it at the end of the line that failed.
    arguments = (["--debug"] if debug else []) + [a for a in arguments if a != "--debug"]
    command = typer.main.get_command(app)
    fit_help(command)
    stdout = sys.stdout
    try:
        with signals_unwind():
            command(args=arguments)
            sys.stdout.flush()  # a disk that is full says so here and not while Python ends
    except DgbenchError as error:
        if debug:
            raise
        from dgbench.harness.terminal.errors import say_error

        say_error(error)
        raise SystemExit(2) from None
    except SystemExit as end:
        if sys.stdout is not stdout:  # typer replaces it where its reader has gone
            sys.stdout = stdout
            raise SystemExit(lose_output(BrokenPipeError(errno.EPIPE, ""))) from None
        code = _flushed(end.code)
        if argv is None and isinstance(code, int) and code > 128:
            if "dgbench.harness.plugins.process" in sys.modules:
                sys.modules["dgbench.harness.plugins.process"].close_all()
            os._exit(code)  # whoever sent a signal does not wait for torch to be unloaded
        raise SystemExit(code) from None
    except OSError as error:
        if error.errno != errno.EPIPE and (debug or error.errno not in UNWRITTEN):
            raise
        raise SystemExit(lose_output(error)) from None


def _flushed(code: Any) -> Any:
    """The exit code of a command, once everything it said is written."""
    try:
        sys.stdout.flush()
    except OSError as error:
        return lose_output(error) or code
    return code
