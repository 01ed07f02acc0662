"""Runs of others: a checked bundle of a run, and what of it can be verified elsewhere."""

from dgbench.harness.bundle.checking import Bundle, check_bundle
from dgbench.harness.bundle.labels import LABELS, label_of
from dgbench.harness.bundle.packing import make_bundle
from dgbench.harness.bundle.verifying import Verification, keep_verified, verify

__all__ = [
    "LABELS",
    "Bundle",
    "Verification",
    "check_bundle",
    "keep_verified",
    "label_of",
    "make_bundle",
    "verify",
]
