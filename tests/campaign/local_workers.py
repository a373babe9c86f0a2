"""Dask workers on this machine, as a campaign starts them."""

from __future__ import annotations

from pathlib import Path

from distributed import LocalCluster

from campaign.launch.local import LocalScheduler
from sites.site_file import Partition
from sites.site_reading import built_in_sites, read_site


def start_local(partition: Partition, dashboard: str) -> LocalCluster:
    """The workers of a partition."""
    site = read_site(built_in_sites()["localhost"])
    site = site.model_copy(update={"partitions": {"p": partition}})
    return LocalScheduler(site).start("p", "", Path(), dashboard, [])
