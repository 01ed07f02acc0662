"""ESDG (Chakaravarthy et al., SC 2021): full-batch training of a timeline, in blocks."""
