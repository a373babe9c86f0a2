"""A simulated machine: exact operation counts in, simulated time and power out."""
