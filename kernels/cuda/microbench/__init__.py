"""Microbenchmarks on a GPU."""
