"""Models of discrete-time dynamic graphs."""
