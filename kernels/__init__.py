"""The kernels that run on a node, and their operation counts.

A kernel has parameters, operation counts by class, and a function that prepares its run. Nothing
here depends on sites, meters, Dask or Zarr.
"""

OWNER = "dvfs-campaign"  # campaign/verbs/command_line.py looks for this
