"""Checks that a policy can be applied: its dates, its site's legal settings, and this cluster."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

from campaign.policy.policy_file import Entry, Policy
from dvfs.input_files import Source, errors_of, raise_all
from sites.site_file import Site
from sites.site_reading import find_site
from sites.slurm_clocks import ask_here, read_configuration, slurm_clocks


@dataclass(frozen=True)
class Cluster:
    """The Slurm on this host. ``configuration``: from ``scontrol show config``; ``partitions``:
    names. Both are empty if there is no Slurm."""

    configuration: Mapping[str, str]
    partitions: Sequence[str]


def this_cluster() -> Cluster:
    """The cluster whose commands are on this host."""
    return Cluster(
        read_configuration(ask_here("scontrol", "show", "config")),
        ask_here("sinfo", "--noheader", "--format=%R").split(),
    )


def site_path(policy: Policy, file: Path, named: str | None) -> Path:
    """The path of the site ``named`` (a built-in's name or a path); by default the policy's.

    Raises:
        FileError: there is no such site file.
    """
    return find_site(policy.site, file.parent) if named is None else find_site(named, Path())


def check_dates(policy: Policy, source: Source, today: datetime.date) -> None:
    """Check that a policy has not expired.

    Raises:
        FileError: it has expired.
    """
    if policy.until < today:
        raise source.error(
            ("until",), f"the policy expired on {policy.until}", "write a new one: campaign policy"
        )


def check_legal(policy: Policy, source: Source, site: Site) -> None:
    """Check that a policy is for a site, and that its settings are legal there.

    Raises:
        FileError: the policy is for another site, or an entry's setting is not legal.
    """
    if site.name != policy.site:
        raise source.error(
            ("site",), f"the policy is for {policy.site!r}, not {site.name!r}", "name its site file"
        )
    for entry in policy.all_entries:
        if entry.clocks.clocks not in {setting.clocks for setting in site.settings}:
            nearest = sorted(site.settings, key=lambda s: _distance(entry, s.clocks))[:3]
            raise source.error(
                (*policy.key_of(entry), "setting"),
                f"entry {entry.name!r}: {entry.clocks}: not a legal setting of {site.name}",
                f"the nearest: {'; '.join(map(str, nearest))}",
            )


def _distance(entry: Entry, clocks: tuple[float | None, float | None]) -> float:
    pairs = zip(entry.clocks.clocks, clocks, strict=True)
    return sum(abs((entry_mhz or 0.0) - (legal_mhz or 0.0)) for entry_mhz, legal_mhz in pairs)


def check_cluster(policy: Policy, source: Source, cluster: Cluster) -> None:
    """Check that a policy is for this cluster, and that its partitions exist.

    Raises:
        FileError: the policy is for another cluster, or no partition matches an entry.
    """
    cluster_name = cluster.configuration.get("ClusterName")
    if cluster_name and policy.cluster and cluster_name.lower() != policy.cluster.lower():
        raise source.error(
            ("cluster",),
            f"the policy is for cluster {policy.cluster!r}, and this is {cluster_name!r}",
            "check it there, or correct the name",
        )
    for entry in policy.entries if cluster.partitions else ():
        pattern = entry.patterns.get("partition")
        if pattern and not any(fnmatchcase(name, pattern) for name in cluster.partitions):
            raise source.error(
                (*policy.key_of(entry), "match", "partition"),
                f"entry {entry.name!r}: no partition matches {pattern!r}",
                f"this cluster has {', '.join(cluster.partitions)}",
            )


def obstacles(policy: Policy, cluster: Cluster, root: Path = Path("/")) -> list[str]:
    """The obstacles in this cluster's configuration to applying or verifying a policy, a sentence
    each; empty if there is no Slurm."""
    configuration = cluster.configuration
    if not configuration:
        return []
    problems = list(slurm_clocks(configuration, policy.device, root).obstacles)
    filters = configuration.get("CliFilterPlugins", "(null)")
    if "lua" not in filters:
        problems.append(
            f"CliFilterPlugins={filters}: the form slurm-cli-filter needs cli_filter/lua"
        )
    flags = configuration.get("AccountingStoreFlags", "(null)")
    if "job_comment" not in flags.lower():
        problems.append(
            f"AccountingStoreFlags={flags}: without job_comment sacct does not have the comments "
            "by which campaign verify knows control jobs"
        )
    return problems


def check_policy(
    policy: Policy,
    source: Source,
    today: datetime.date,
    site: Site | None,
    cluster: Cluster,
) -> None:
    """Check that a policy can be applied. ``site``: None if its file is not known.

    Raises:
        FileError: all errors together.
    """
    checks = [
        partial(check_dates, policy, source, today),
        partial(check_cluster, policy, source, cluster),
    ]
    if site is not None:
        checks.append(partial(check_legal, policy, source, site))
    raise_all(errors_of(checks))
