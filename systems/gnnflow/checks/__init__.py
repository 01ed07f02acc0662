"""Checks of GNNFlow's claims by subject; `claims.CHECKS` maps claims to them."""
