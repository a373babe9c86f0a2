"""Machines: their files, meters and clock controls, and a simulated one.

A site knows nothing of kernels' insides, Dask or Zarr.
"""

OWNER = "dvfs-campaign"  # campaign/verbs/own_packages.py looks for this
