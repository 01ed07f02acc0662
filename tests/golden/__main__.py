"""`python -m tests.golden`: see `record`."""

import sys

from tests.golden.record import main

sys.exit(main(sys.argv[1:]))
