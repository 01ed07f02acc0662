"""What ESDG's rows say of its claims, by subject; `claims.CHECKS` names which says what."""
