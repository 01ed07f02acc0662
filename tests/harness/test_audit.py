"""Outcome of an audit when its database answers, answers in part, or cannot be reached."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "audit.py"

pytestmark = pytest.mark.skipif(not SCRIPT.is_file(), reason="no checkout: scripts do not travel")


@pytest.fixture(scope="module")
def audit():
    spec = importlib.util.spec_from_file_location("audit", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["audit"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["audit"]


FLAW = {"id": "PYSEC-1", "aliases": ["CVE-1"], "fix_versions": ["1.1"], "description": "bad"}


def answer(*packages: str) -> str:
    """Output of pip-audit on packages, by one word each."""
    said = {
        "clean": {"vulns": []}, "flawed": {"vulns": [FLAW]}, "skipped": {"skip_reason": "unknown"},
        "ours": {"name": "dgbench", "skip_reason": "not found on PyPI: dgbench"},
    }  # fmt: skip
    found = [{"name": f"p{n}", "version": "1.0"} | said[one] for n, one in enumerate(packages)]
    return json.dumps({"dependencies": found, "fixes": []})


@pytest.mark.parametrize(
    ("code", "out", "err", "state", "audited"),
    [
        (0, answer("clean", "clean", "ours"), "", "clean", 2),
        (1, answer("clean", "flawed"), "", "vulnerable", 2),
        (0, answer("clean", "clean", "skipped"), "", "partly audited", 2),
        # "No known vulnerabilities found", says pip-audit here, and ends with 0
        (0, answer("skipped", "skipped"), "No known", "not audited", 0),
        (0, answer(), "", "not audited", 0),
        (1, "", "ConnectionError: Max retries exceeded", "not audited", 0),
        (1, "not json", "", "not audited", 0),
        # one that is found counts, however few were answered
        (1, answer("flawed", "skipped", "skipped"), "", "vulnerable", 1),
    ],
)
def test_skipped_is_not_audited(audit, code, out, err, state, audited) -> None:
    outcome = audit.decide(code, out, err)
    assert (outcome.state, outcome.audited) == (state, audited)
