"""Launching: from a plan's points to measuring subprocesses on every partition, through Dask."""
