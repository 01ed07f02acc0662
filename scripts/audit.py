"""Ask for known vulnerabilities of every package that is installed here, by pip-audit.

Usage: python scripts/audit.py [--json] [--timeout SECONDS] [--ignore ID ...]

pip-audit calls an environment clean also when its database has answered for none of its packages:
what it could not find it skips, and skipped is not audited. So this counts what was asked and what
was answered. Exit code 1: something known is here. 0: nothing known is, or the database cannot be
reached from here; then the row says so, and that nothing was audited.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from typing import Any

LOCAL = {"dgbench"}
"""Packages that no index has: skipped on purpose."""
ENOUGH = 0.5
"""Share of the packages that must be answered for the database to count as reached."""
CLEAN, VULNERABLE, PARTLY, NOT_AUDITED = "clean", "vulnerable", "partly audited", "not audited"


@dataclass
class Outcome:
    """Outcome of an audit.

    Attributes:
        state: `clean`, `vulnerable`, `partly audited` or `not audited`.
        reason: why not all was audited, or "".
        audited: packages that were answered. skipped: name and reason of the others.
        found: package, version, vulnerability and the versions that fix it.
    """

    state: str
    reason: str = ""
    audited: int = 0
    skipped: dict[str, str] = field(default_factory=dict)
    found: list[dict[str, Any]] = field(default_factory=list)


def decide(code: int, out: str, err: str, ignored: frozenset[str] = frozenset()) -> Outcome:
    """Read what pip-audit printed.

    Args:
        code, out, err: its exit code, its JSON and its words.
        ignored: identifiers of vulnerabilities that were looked at and do not concern dgbench.
    """
    try:
        packages = json.loads(out)["dependencies"]
        names = [str(package["name"]) for package in packages]
    except (ValueError, KeyError, TypeError):
        last = (err.strip().splitlines() or [f"it ended with {code} and said nothing"])[-1]
        return Outcome(NOT_AUDITED, f"pip-audit gave no list: {last[:200]}")
    skipped = {
        name: str(package["skip_reason"])
        for name, package in zip(names, packages, strict=True)
        if package.get("skip_reason") and name not in LOCAL
    }
    asked = len([name for name in names if name not in LOCAL])
    audited = asked - len(skipped)
    found = [
        {
            "package": package["name"],
            "version": package.get("version", ""),
            "id": one["id"],
            "aliases": one.get("aliases", []),
            "fixed": one.get("fix_versions", []),
        }
        for package in packages
        for one in package.get("vulns", [])
        if not ignored & {one["id"], *one.get("aliases", [])}
    ]
    if found:
        return Outcome(VULNERABLE, "", audited, skipped, found)
    if audited < max(1, ENOUGH * asked):
        reason = next(iter(skipped.values()), "no package is installed")
        told = f"the database answered for {audited} of {asked} packages ({reason})"
        return Outcome(NOT_AUDITED, told, audited, skipped)
    if skipped:
        return Outcome(PARTLY, f"{len(skipped)} of {asked} packages: no answer", audited, skipped)
    return Outcome(CLEAN, "", audited)


def audit(timeout_s: float, ignored: frozenset[str] = frozenset()) -> Outcome:
    """Run pip-audit over this environment."""
    command = [
        sys.executable, "-m", "pip_audit", "--local", "--format", "json",
        "--progress-spinner", "off", "--timeout", "15",
    ]  # fmt: skip
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=timeout_s
        )
    except subprocess.TimeoutExpired:
        return Outcome(NOT_AUDITED, f"no answer within {timeout_s:.0f} s")
    except OSError as error:
        return Outcome(NOT_AUDITED, f"pip-audit cannot be started: {error}")
    return decide(done.returncode, done.stdout, done.stderr, ignored)


def said(outcome: Outcome) -> list[str]:
    """Lines for a person; what was found first."""
    lines = [
        f"{one['package']} {one['version']}: {one['id']} {' '.join(one['aliases'])}, fixed in "
        f"{', '.join(one['fixed']) or 'no release yet'}"
        for one in outcome.found
    ]
    lines += [f"{name}: not audited: {why}" for name, why in outcome.skipped.items()][:10]
    if len(outcome.skipped) > 10:
        lines.append(f"... and {len(outcome.skipped) - 10} more that were not audited")
    words = f"audit: {outcome.state}, {outcome.audited} packages answered"
    return [*lines, f"{words}; {outcome.reason}" if outcome.reason else words]


def main() -> int:
    """Audit, say what came out; 1 where something known is here."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print the outcome as JSON")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for all of it")
    parser.add_argument("--ignore", nargs="*", default=[], metavar="ID", help="looked at before")
    options = parser.parse_args()
    outcome = audit(options.timeout, frozenset(options.ignore))
    print(json.dumps(asdict(outcome), indent=1) if options.json else "\n".join(said(outcome)))
    return 1 if outcome.state == VULNERABLE else 0


if __name__ == "__main__":
    sys.exit(main())
