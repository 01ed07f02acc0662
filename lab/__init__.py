"""What experiments and claims are made of: cells, observations, comparisons, verbs, charts."""
