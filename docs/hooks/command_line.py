"""Write docs/command-line.md from the app itself: `python docs/hooks/command_line.py`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[1] / "command-line.md"
HEAD = """# The command line

This page is written from the commands' own help (`python docs/hooks/command_line.py`); a test
compares both. `dgbench COMMAND --help` shows the same. A mistake ends with `error:`, a hint and
exit code 2; `--debug` at any place shows the traceback. Results go to stdout, progress to stderr.

Where things are kept can be said by `DGBENCH_DATA` (real data), `DGBENCH_CARDS` (cards of your
own), `DGBENCH_CACHE` (downloads, prepared data, calibrations) and `DGBENCH_RESULTS` (runs).
`DGBENCH_OFFLINE=1` forbids downloads. `DGBENCH_PLUGIN_SECONDS` is how long a third party's plugin
may take to be imported (10).
"""

EXIT_CODES = (
    ("0", "`run`, `reproduce`", "every cell ran, or this machine lacks what it needs. A cell that "
     "ran out of memory or time counts too, if a claim that holds rests on it"),
    ("0", "all others", "done; also where nobody reads on (`dgbench list \\| head -1`)"),
    ("1", "`run`, `reproduce`", "a cell failed (a wrong result is said first; crash, time, "
     "memory), none ran, or rows cannot be kept"),
    ("1", "`repeat`, `compare`, `ab`", "not the same; slower, or a counter grew"),
    ("1", "`bisect`", "no single commit was found and confirmed"),
    ("1", "`doctor`, `data verify`", "something that dgbench needs is missing; a file is not what "
     "its card says"),
    ("1", "`verify`", "a counter or a result differs from the bundle's"),
    ("2", "all", "a mistake in what was asked for, or the standard output cannot be written"),
    ("130, 143, 129", "all", "stopped by Ctrl-C, SIGTERM, SIGHUP. The rows of a run are kept; "
     "`dgbench report` writes its report"),
)  # fmt: skip
"""Code, commands, meaning."""


def page() -> str:
    """The page's text."""
    from typer.main import get_command

    from dgbench.harness.cli import app

    return HEAD + _codes() + "".join(_commands("dgbench", get_command(app), 2))


def _codes() -> str:
    rows = "".join(f"| {' | '.join(row)} |\n" for row in EXIT_CODES)
    return f"\n## Exit codes\n\n| code | of | meaning |\n| --- | --- | --- |\n{rows}"


def _commands(path: str, group: Any, level: int) -> Iterator[str]:
    for name, command in group.commands.items():
        yield from _command(f"{path} {name}", command, level)
        if hasattr(command, "commands"):
            yield from _commands(f"{path} {name}", command, level + 1)


def _command(path: str, command: Any, level: int) -> Iterator[str]:
    about = inspect.cleandoc(command.help or command.short_help or "")
    about, examples = _examples(about.replace("<", "&lt;"))
    params = [p for p in command.params if "--help" not in p.opts]
    arguments = [p for p in params if p.param_type_name == "argument"]
    options = [p for p in params if p.param_type_name == "option"]
    usage = [path, *(_named(a) for a in arguments)]
    if hasattr(command, "commands"):
        usage.append("COMMAND")
    elif options:
        usage.append("[OPTIONS]")
    yield f"\n{'#' * level} {path}\n\n{about}\n\n```text\n{' '.join(usage)}\n```\n"
    rows = [(_named(a), _about(a)) for a in arguments]
    rows += [(", ".join(o.opts) + _value(o), _about(o)) for o in options]
    if rows:
        yield "\n| argument | meaning |\n| --- | --- |\n"
        yield from (f"| `{name}` | {said} |\n" for name, said in rows)
    for example in examples:
        yield f"\nExample: `{example}`\n"


def _examples(about: str) -> tuple[str, list[str]]:
    blocks = about.split("\n\n")
    found = [" ".join(b.split())[len("Example: ") :] for b in blocks if b.startswith("Example: ")]
    return "\n\n".join(b for b in blocks if not b.startswith("Example: ")), found


def _named(argument: Any) -> str:
    word = (argument.metavar or argument.name).strip("[]{}.").upper()
    many = "..." if argument.nargs == -1 else ""
    return f"{word}{many}" if argument.required else f"[{word}{many}]"


def _value(option: Any) -> str:
    return "" if option.is_flag else " " + max(option.opts, key=len).strip("-").upper()


def _about(parameter: Any) -> str:
    said = " ".join((parameter.help or "").split()).replace("|", "\\|").replace("<", "&lt;")
    if parameter.param_type_name == "option" and not parameter.is_flag:
        default = parameter.default
        if callable(default):
            default = None
        if default not in (None, "", [], ()) and "default" not in said.lower():
            said += f" Default: {default}."
    return said


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"written: {PAGE.name}")
