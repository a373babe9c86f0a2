"""What runs on a node, and what it counts.

A kernel has parameters, operation counts by class, and a way to run. Nothing here depends on
sites, meters, Dask or Zarr.
"""

OWNER = "dvfs-campaign"  # campaign/verbs/own_packages.py looks for this
