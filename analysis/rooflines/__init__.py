"""Rooflines in time, energy and power, caps on power, and the classic regression."""
