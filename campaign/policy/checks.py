"""Whether a policy can be applied: by its dates, its site's legal settings, and this cluster."""

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
from sites.site_reading import find_site, read_site
from sites.slurm_clocks import ask_here, read_configuration, slurm_clocks


@dataclass(frozen=True)
class Cluster:
    """What Slurm says here. ``configuration``: of ``scontrol show config``; ``partitions``: their
    names. Both are empty where there is no Slurm."""

    configuration: Mapping[str, str]
    partitions: Sequence[str]


def this_cluster() -> Cluster:
    """The cluster whose commands are on this host."""
    return Cluster(
        read_configuration(ask_here("scontrol", "show", "config")),
        ask_here("sinfo", "--noheader", "--format=%R").split(),
    )


def site_of(policy: Policy, file: Path, named: str | None) -> Site:
    """The site that is ``named`` (a built-in's name or a path), by default the policy's: a built-in
    one.

    Raises:
        FileError: there is no such site file, or it is wrong.
    """
    if named is not None:
        return read_site(find_site(named, Path()))
    return read_site(find_site(policy.site, file.parent))


def check_dates(policy: Policy, source: Source, today: datetime.date) -> None:
    """Refuse a policy that has expired.

    Raises:
        FileError: it has.
    """
    if policy.until < today:
        raise source.error(
            ("until",), f"the policy expired on {policy.until}", "write a new one: campaign policy"
        )


def check_legal(policy: Policy, source: Source, site: Site) -> None:
    """Refuse settings that are not legal at a site, and another site's policy.

    Raises:
        FileError: it is another site's, or an entry's setting is not legal.
    """
    if site.name != policy.site:
        raise source.error(
            ("site",), f"the policy is for {policy.site!r}, not {site.name!r}", "name its site file"
        )
    for entry in policy.all_entries:
        if entry.clocks.clocks not in {setting.clocks for setting in site.settings}:
            near = sorted(site.settings, key=lambda one: _distance(entry, one.clocks))[:3]
            raise source.error(
                (*_key(policy, entry), "setting"),
                f"entry {entry.name!r}: {entry.clocks}: not a legal setting of {site.name}",
                f"the nearest: {'; '.join(map(str, near))}",
            )


def _distance(entry: Entry, clocks: tuple[float | None, float | None]) -> float:
    pairs = zip(entry.clocks.clocks, clocks, strict=True)
    return sum(abs((one or 0.0) - (other or 0.0)) for one, other in pairs)


def _key(policy: Policy, entry: Entry) -> tuple[str | int, ...]:
    default = entry is policy.default
    return ("default",) if default else ("entries", policy.entries.index(entry))


def check_cluster(policy: Policy, source: Source, cluster: Cluster) -> None:
    """Refuse another cluster's policy, and entries whose partitions are not there.

    Raises:
        FileError: see above.
    """
    here = cluster.configuration.get("ClusterName")
    if here and policy.cluster and here.lower() != policy.cluster.lower():
        raise source.error(
            ("cluster",),
            f"the policy is for cluster {policy.cluster!r}, and this is {here!r}",
            "check it there, or correct the name",
        )
    for entry in policy.entries if cluster.partitions else ():
        pattern = entry.match.partition if entry.match is not None else None
        if pattern and not any(fnmatchcase(name, pattern) for name in cluster.partitions):
            raise source.error(
                (*_key(policy, entry), "match", "partition"),
                f"entry {entry.name!r}: no partition matches {pattern!r}",
                f"this cluster has {', '.join(cluster.partitions)}",
            )


def obstacles(policy: Policy, cluster: Cluster, root: Path = Path("/")) -> list[str]:
    """What of this cluster's configuration keeps a policy from being applied or verified, a
    sentence each; none where there is no Slurm."""
    configuration = cluster.configuration
    if not configuration:
        return []
    found = list(slurm_clocks(configuration, policy.device, root).obstacles)
    filters = configuration.get("CliFilterPlugins", "(null)")
    if "lua" not in filters:
        found.append(f"CliFilterPlugins={filters}: the form slurm-cli-filter needs cli_filter/lua")
    flags = configuration.get("AccountingStoreFlags", "(null)")
    if "job_comment" not in flags.lower():
        found.append(
            f"AccountingStoreFlags={flags}: without job_comment sacct does not have the comments "
            "by which campaign verify knows control jobs"
        )
    return found


def check_policy(
    policy: Policy,
    source: Source,
    today: datetime.date,
    site: Site | None,
    cluster: Cluster,
) -> None:
    """Refuse a policy that cannot be applied; ``site``: where its file is known.

    Raises:
        FileError: with all that is wrong.
    """
    checks = [
        partial(check_dates, policy, source, today),
        partial(check_cluster, policy, source, cluster),
    ]
    if site is not None:
        checks.append(partial(check_legal, policy, source, site))
    raise_all(errors_of(checks))
