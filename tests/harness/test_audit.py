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


def answer(*packages: dict) -> str:
    return json.dumps({"dependencies": list(packages), "fixes": []})


def clean(name: str) -> dict:
    return {"name": name, "version": "1.0", "vulns": []}


def skipped(name: str) -> dict:
    return {"name": name, "skip_reason": f"not found on PyPI: {name}"}


@pytest.mark.parametrize(
    ("code", "out", "err", "state", "audited"),
    [
        (0, answer(clean("a"), clean("b"), skipped("dgbench")), "", "clean", 2),
        (1, answer(clean("a"), {**clean("b"), "vulns": [FLAW]}), "", "vulnerable", 2),
        (0, answer(clean("a"), clean("b"), skipped("c")), "", "partly audited", 2),
        # "No known vulnerabilities found", says pip-audit here, and ends with 0
        (0, answer(skipped("a"), skipped("b")), "No known", "not audited", 0),
        (0, answer(), "", "not audited", 0),
        (1, "", "ConnectionError: Max retries exceeded", "not audited", 0),
        (1, "not json", "", "not audited", 0),
        # one that is found counts, however few were answered
        (1, answer({**clean("a"), "vulns": [FLAW]}, skipped("b"), skipped("c")), "",
         "vulnerable", 1),
    ],
)  # fmt: skip
def test_skipped_is_not_audited(audit, code, out, err, state, audited) -> None:
    outcome = audit.decide(code, out, err)
    assert (outcome.state, outcome.audited) == (state, audited)
