"""What runs on a node, and what it counts.

A kernel knows its parameters, its operation counts by class and how to run; it knows
nothing of sites, meters, Dask or Zarr.
"""

OWNER = "dvfs-campaign"  # campaign/own_packages.py looks for this
