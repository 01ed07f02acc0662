"""What people see in a terminal: plan, progress, verdicts, ending, errors."""
