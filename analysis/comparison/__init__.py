"""Two sets of measurements of the same points, beside each other: what changed significantly."""
