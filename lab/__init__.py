"""Building blocks of experiments and claims: cells, observations, comparisons, forms, charts."""
