"""Measurements as the model takes them: rows of a site, and energies from traces."""
