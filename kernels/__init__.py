"""What runs on a node, and what it counts.

A kernel has parameters, operation counts by class, and a way to run. Nothing here depends on
sites, meters, Dask or Zarr.
"""

OWNER = "dvfs-campaign"  # campaign/verbs/command_line.py looks for this
