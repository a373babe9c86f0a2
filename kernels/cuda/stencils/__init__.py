"""Stencils over time on a GPU."""
