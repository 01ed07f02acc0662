"""Run a function as a rank that torchrun has started, on one machine or several.

    torchrun --nproc-per-node 4 -m dgbench.runtime.ranks package.module:function --args '[3]'

The function gets the communicator and the arguments. What rank 0 returns is printed as JSON.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Sequence

from dgbench.runtime.errors import DgbenchError, InvalidInputError
from dgbench.runtime.ranks.group import BACKENDS, join


def main(arguments: Sequence[str] | None = None) -> int:
    """Join, run, leave. Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="torchrun ... -m dgbench.runtime.ranks", description="Run a function on every rank."
    )
    parser.add_argument("function", help="module:function")
    parser.add_argument("--args", default="[]", help="JSON list of further arguments")
    parser.add_argument("--backend", default="auto", choices=BACKENDS)
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--timeout", type=float, default=600.0, help="seconds an operation may wait"
    )
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    try:
        module, _, name = given.function.partition(":")
        try:
            function = getattr(importlib.import_module(module), name)
            values = json.loads(given.args)
        except (ImportError, AttributeError, ValueError) as error:
            raise InvalidInputError(
                f"cannot run '{given.function}' {given.args}: {error}"
            ) from None
        if not isinstance(values, list):
            raise InvalidInputError(f"--args is {given.args}, expected a JSON list")
        with join(
            timeout_s=given.timeout, backend=given.backend, device=given.device, seed=given.seed
        ) as comm:
            result = function(comm, *values)
            if comm.rank == 0:
                print(json.dumps(result), flush=True)
    except DgbenchError as error:
        print(f"error: {error}" + (f"\n{error.hint}" if error.hint else ""), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
