"""Limits of a device: copies, random reads, chains of loads, launches, multiplications."""
