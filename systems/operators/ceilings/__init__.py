"""What a device can do: copies, random reads, chains of loads, launches, multiplications."""
