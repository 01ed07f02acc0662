"""Findings of PiPAD's checks: what rows say of a claim, by what they are about."""
