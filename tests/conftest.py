"""Settings for all tests."""

from __future__ import annotations

import os

from hypothesis import settings

# No test looks for a network; those of downloads have a server of their own and unset this.
os.environ["DGBENCH_OFFLINE"] = "1"

# In CI the examples are fixed by the test itself, so a change fails for what it changed. Elsewhere
# they are drawn anew every time, and a failure prints how to repeat it.
# No example fails for being slow: a busy machine would decide.
settings.register_profile("ci", derandomize=True, database=None, print_blob=True, deadline=None)
settings.register_profile("search", print_blob=True, deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "search")
