"""Launching: runs a plan's points on the workers of every partition, through Dask."""
