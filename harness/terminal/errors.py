"""Error messages for users: the mistake, the allowed values, and a hint."""

from __future__ import annotations

import sys

from dgbench.harness.terminal.text import encodable
from dgbench.runtime.errors import DgbenchError


def say_error(error: DgbenchError) -> None:
    """Print `error: ...` and the hint, indented, to stderr."""
    lines = [f"error: {error}"]
    lines += [f"  {line}" for line in (error.hint or "").splitlines() if line.strip()]
    print(encodable("\n".join(lines), sys.stderr), file=sys.stderr)
