"""The comparison of two sets of measurements of the same points: significant changes."""
