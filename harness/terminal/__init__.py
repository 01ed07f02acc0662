"""Terminal output: plan, progress, verdicts, ending, errors."""
