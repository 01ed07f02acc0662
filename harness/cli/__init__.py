"""The `dgbench` command.

Commands import what they need when they are called, so that `--help` and completion are quick.
Results go to stdout, progress and warnings to stderr. A mistake of the user ends with `error:`, a
hint and exit code 2, never with a traceback unless `--debug` asks for one.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import logging
import os
import sys
from collections.abc import Sequence
from typing import Any

import typer

from dgbench.harness.cli import (
    claiming,
    comparing,
    exporting,
    listing,
    repeating,
    reporting,
    running,
)
from dgbench.harness.cli.help_pages import fit_help
from dgbench.runtime.errors import DgbenchError

app = typer.Typer(
    name="dgbench",
    help="Race systems that train graph networks on dynamic graphs, and check the papers' claims.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for module in (listing, running, repeating, claiming, comparing, reporting, exporting):
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


@app.callback()
def _common(
    debug: bool = typer.Option(False, "--debug", help="Show tracebacks and debug messages."),
) -> None:
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.DEBUG if debug else logging.WARNING,
        format="%(levelname)s %(name)s: %(message)s" if debug else "warning: %(message)s",
    )
    for loud in ("matplotlib", "fontTools", "PIL"):
        logging.getLogger(loud).setLevel(logging.WARNING)


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point. Exits with 0, 1 (something is slower or not the same), 2 (a mistake) or 130."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    # The switch may stand anywhere: people add it at the end of the line that failed.
    arguments = (["--debug"] if debug else []) + [a for a in arguments if a != "--debug"]
    command = typer.main.get_command(app)
    fit_help(command)
    try:
        command(args=arguments)
        sys.stdout.flush()  # a disk that is full says so here and not while Python ends
    except DgbenchError as error:
        if debug:
            raise
        from dgbench.harness.terminal.errors import say_error

        say_error(error)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        print("Stopped.", file=sys.stderr)
        raise SystemExit(130) from None
    except SystemExit as end:
        raise SystemExit(_flushed(end.code)) from None
    except BrokenPipeError:
        raise SystemExit(_without_reader()) from None
    except OSError as error:
        if debug or error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            raise
        raise SystemExit(_unwritten(error)) from None


def _flushed(code: Any) -> Any:
    """The exit code of a command, once everything it said is written."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        return _without_reader()
    except OSError as error:
        return _unwritten(error)
    return code


def _without_reader() -> int:
    """The exit code where whoever read the output has gone, as in `dgbench list | head -1`."""
    _discard_output()
    return 0


def _unwritten(error: OSError) -> int:
    """The exit code where the output cannot be written; says why."""
    _discard_output()
    reason = (error.strerror or str(error)).lower()
    print(f"error: the standard output cannot be written: {reason}", file=sys.stderr)
    return 2


def _discard_output() -> None:
    """Let what is still buffered go nowhere, so that Python's own flush at the end is silent."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
