"""Special checks of DGC's claims, by subject; `systems.dgc.claims` says which answers what."""
