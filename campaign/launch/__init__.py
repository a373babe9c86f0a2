"""Measures a plan's points on the workers of all partitions, through Dask."""
