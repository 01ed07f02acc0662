"""`python -m dgbench` is the `dgbench` command."""

from dgbench.harness.cli import main

main()
