"""Write docs/command-line.md from the app itself: `python docs/hooks/command_line.py`."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[1] / "command-line.md"
HEAD = """# The command line

Written by `python docs/hooks/command_line.py` from the commands' own help; `dgbench COMMAND --help`
says more and has examples. Results go to stdout, progress to stderr; `--debug` at any place shows
the traceback of an error. An option that takes a value is written with its default, or with `...`.

- `DGBENCH_DATA`: folder of real data
- `DGBENCH_CARDS`: cards of your own
- `DGBENCH_CACHE`: downloads, prepared data, calibrations
- `DGBENCH_RESULTS`: runs
- `DGBENCH_OFFLINE=1`: no downloads
- `DGBENCH_PLUGIN_SECONDS`: time of a plugin's import (10)
- `DGBENCH_AGGREGATE`: products on a CPU: `measured` here, `model`, `avx512`, `avx2`, `portable`
- `DGBENCH_SCAN`: products of recurrences on a device: `float32` or `3xtf32`
- `DGBENCH_AVX2=1`: read when operators are compiled: no registers wider than 256 bits
"""

EXIT_CODES = (
    ("0", "`run`, `reproduce`", "every cell ran (or out of memory or time, if a claim that holds "
     "rests on it), or this machine lacks what it needs"),
    ("1", "`run`, `reproduce`", "a cell failed, none ran, or rows cannot be kept"),
    ("1", "`bisect`", "no single commit was found and confirmed"),
    ("1", "`doctor`, `data verify`", "something needed is missing; a file is not what "
     "its card says"),
    ("2", "all", "a mistake in what was asked for, or stdout cannot be written"),
    ("3", "`repeat`, `compare`, `ab`", "not the same; slower, or a counter grew"),
    ("3", "`verify`", "a counter or a result differs from the bundle's"),
    ("130, 143, 129", "all", "Ctrl-C, SIGTERM, SIGHUP; rows are kept"),
)  # fmt: skip
"""Code, commands, meaning."""


def page() -> str:
    """The page's text."""
    from typer.main import get_command

    from dgbench.harness.cli import app

    found = list(_commands("dgbench", get_command(app), 2))
    counts = Counter(_line(option) for _, command, _ in found for option in _options(command))
    shared = {line for line, count in counts.items() if count > 1}
    head = f"{HEAD}{_codes()}\n## Shared options\n\n"
    options = "".join(line for line in counts if line in shared)
    return head + options + "".join(_command(*each, shared) for each in found)


def _codes() -> str:
    rows = "".join(f"| {' | '.join(row)} |\n" for row in EXIT_CODES)
    return f"\n## Exit codes\n\n| code | of | meaning |\n| --- | --- | --- |\n{rows}"


def _commands(path: str, group: Any, level: int) -> Iterator[tuple[str, Any, int]]:
    """Path, command and level of its heading; a group stands before what it holds."""
    for name, command in group.commands.items():
        yield f"{path} {name}", command, level
        if hasattr(command, "commands"):
            yield from _commands(f"{path} {name}", command, level + 1)


def _options(command: Any) -> list[Any]:
    return [p for p in command.params if p.param_type_name == "option" and "--help" not in p.opts]


def _command(path: str, command: Any, level: int, shared: set[str]) -> str:
    """Heading, first paragraph of the help, arguments, options, names of the shared ones."""
    about = inspect.cleandoc(command.help or command.short_help or "").partition("\n\n")[0]
    lines = [_line(p) for p in command.params if p.param_type_name == "argument"]
    options = _options(command)
    lines += [line for option in options if (line := _line(option)) not in shared]
    parts = [f"\n{'#' * level} {path}\n\n{about.replace('<', '&lt;')}\n"]
    if lines:
        parts += ["\n", *lines]
    if both := [f"`{_option(o)}`" for o in options if _line(o) in shared]:
        parts.append(f"\nShared: {', '.join(both)}.\n")
    return "".join(parts)


def _line(parameter: Any) -> str:
    """An item of a list: name, value by default, help."""
    said = " ".join((parameter.help or "").split()).replace("<", "&lt;")
    if parameter.param_type_name == "argument":
        return f"- `{_named(parameter)}`: {said}\n"
    return f"- `{_option(parameter)}`: {said}\n"


def _option(option: Any) -> str:
    """`--preset=quick`, `--json` or `--header, --no-header`."""
    names = ", ".join([*option.opts, *option.secondary_opts])
    default = option.default
    if option.is_flag:
        return names
    return names + ("=..." if callable(default) or default in (None, "", [], ()) else f"={default}")


def _named(argument: Any) -> str:
    word = (argument.metavar or argument.name).strip("[]{}.").upper()
    many = "..." if argument.nargs == -1 else ""
    return f"{word}{many}" if argument.required else f"[{word}{many}]"


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"written: {PAGE.name}")
