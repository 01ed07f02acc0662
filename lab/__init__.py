"""Building blocks of experiments and claims: cells, observations, comparisons, verbs, charts."""
