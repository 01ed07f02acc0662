"""Checks of T-GCN's claims by subject; `claims.CHECKS` maps claims to them."""
