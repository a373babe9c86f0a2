"""Machines: their files, meters and clock controls, and a simulated one.

A site knows nothing of kernels' insides, Dask or Zarr.
"""

OWNER = "dvfs-campaign"  # campaign/verbs/command_line.py looks for this
