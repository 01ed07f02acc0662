"""Checks of ESDG's claims by subject; `claims.CHECKS` maps claims to them."""
