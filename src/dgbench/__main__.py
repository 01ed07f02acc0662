"""`python -m dgbench` is the `dgbench` command."""

import sys

if sys.version_info < (3, 10):  # noqa: UP036  (a source tree can be started without installing)
    sys.exit(
        "error: dgbench needs Python 3.10 or newer, this is Python {}.{}. "
        "Start it with a newer one, as in: python3.12 -m dgbench".format(*sys.version_info[:2])
    )

from dgbench.harness.cli import main

main()
