"""The checked values of the site file and the policy that `campaign exec` needs.

Reading and checking the files takes longer than the rest of `exec`. The result is therefore cached
for the day, with a cache file for each pair of files, and is valid while both have the same text.
It is read only if it belongs to this user alone.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from campaign.policy.orders import Order, Orders
from dvfs.setting import Setting
from sites.clocks import CONTROLS
from sites.clocks.shared.private_files import OwnershipError, open_folder, read_owned
from sites.meters import METERS

if TYPE_CHECKING:
    from sites.site_file import Site

FORMAT = 1


@dataclass(frozen=True)
class CoreVoltage:
    """As in the site file."""

    chip: str
    label: str


@dataclass(frozen=True, kw_only=True)
class NodeClocks:
    """As in the site file."""

    control: str
    options: Mapping[str, Any]
    core_voltage: CoreVoltage | None
    device: str
    tolerance_pct: float


@dataclass(frozen=True, kw_only=True)
class NodeMeter:
    """As in the site file."""

    kind: str
    use: str
    options: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class NodeSite:
    """The parts of a site that setting clocks and measuring need."""

    name: str
    is_simulated: bool
    clocks: NodeClocks
    meters: Sequence[NodeMeter]
    settings: list[Setting]
    power_limit: None = None
    profiles: None = None
    """A policy sets clocks alone."""


def checked_inputs(site: str | None, policy: str | None) -> tuple[NodeSite, Orders | None]:
    """The site, and the orders of the policy, if one is named, after checking that it may be
    applied here today. ``site``: a built-in's name or a path; None: the policy's. ``policy``: its
    path.

    Raises:
        FileError: with file, line, key, what was found and what would be right.
    """
    cluster = os.environ.get("SLURM_CLUSTER_NAME", "")
    place = str(Path(site).absolute()) if site is not None and site.endswith(".toml") else site
    pair = [place, None if policy is None else str(Path(policy).absolute()), cluster]
    stamped = [*pair, str(datetime.date.today()), FORMAT]
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111
    folder = Path(home, "dvfs-campaign", "exec")
    name = hashlib.sha256(json.dumps(pair).encode()).hexdigest()[:24] + ".json"
    with contextlib.suppress(OSError, OwnershipError, ValueError, KeyError, TypeError):
        record = json.loads(_read_cache(folder, name))
        if record["stamp"] == _stamp(stamped, record["files"]):
            return _from_cache(record)
    node, orders, files = _check(site, policy, cluster)
    document = {
        "files": files,
        "stamp": _stamp(stamped, files),
        "controls": {node.clocks.control: CONTROLS[node.clocks.control]},
        "meters": {meter.kind: METERS[meter.kind] for meter in node.meters},
        "site": asdict(node),
        "orders": None if orders is None else asdict(orders),
    }
    with contextlib.suppress(OSError, TypeError):  # TypeError: an option that JSON does not have
        from dvfs.files import write_kept  # noqa: PLC0415

        data = json.dumps(document).encode()
        if folder.is_absolute():
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_kept(folder / name, data)
    return node, orders


def _stamp(stamped: Sequence[Any], files: Sequence[str]) -> str:
    """A hash that differs if a new check is needed."""
    stamp = hashlib.sha256(json.dumps(stamped).encode())
    for path in files:
        stamp.update(hashlib.sha256(Path(path).read_bytes()).digest())
    return stamp.hexdigest()


def _read_cache(folder: Path, name: str) -> str:
    descriptor = open_folder(folder)
    try:
        return read_owned(descriptor, folder, name)
    finally:
        os.close(descriptor)


def _from_cache(record: Mapping[str, Any]) -> tuple[NodeSite, Orders | None]:
    site, clocks, orders = record["site"], record["site"]["clocks"], record["orders"]
    voltage = clocks["core_voltage"] and CoreVoltage(**clocks["core_voltage"])
    node = NodeSite(
        name=site["name"],
        is_simulated=site["is_simulated"],
        clocks=NodeClocks(**clocks | {"core_voltage": voltage}),
        meters=[NodeMeter(**meter) for meter in site["meters"]],
        settings=[Setting(**setting) for setting in site["settings"]],
    )
    if orders is not None:
        entries = (
            Order(**order | {"setting": Setting(**order["setting"])}) for order in orders["entries"]
        )
        orders = Orders(**orders | {"entries": tuple(entries)})
    CONTROLS.checked |= record["controls"]
    METERS.checked |= record["meters"]
    return node, orders


def _check(
    named: str | None, policy: str | None, cluster: str
) -> tuple[NodeSite, Orders | None, list[str]]:
    """The site, the orders, and the files that were read."""
    from sites.site_reading import find_site, read_site  # noqa: PLC0415

    if policy is None:
        file = find_site(named or "", Path())
        return node_site(read_site(file)), None, [str(file.absolute())]
    from campaign.policy.checks import Cluster, check_policy, site_path  # noqa: PLC0415
    from campaign.policy.policy_file import read_policy  # noqa: PLC0415

    path = Path(policy)
    checked, source = read_policy(path)
    file = site_path(checked, path, named)
    site, today = read_site(file), datetime.date.today()
    local = Cluster({"ClusterName": cluster} if cluster else {}, ())
    check_policy(checked, source, today, site, local)
    files = [str(file.absolute()), str(path.absolute())]
    return node_site(site), _with_site_settings(checked.orders(today), site), files


def _with_site_settings(orders: Orders, site: Site) -> Orders:
    """The orders with the site's name of the second clock: a policy calls it ``mem_mhz``."""
    settings = {
        setting.clocks: replace(setting, power_limit_w=None, profile=None)
        for setting in site.settings
    }
    entries = (replace(order, setting=settings[order.setting.clocks]) for order in orders.entries)
    return replace(orders, entries=tuple(entries))


def node_site(site: Site) -> NodeSite:
    """The part of a site file that setting and measuring need."""
    voltage = site.clocks.core_voltage
    return NodeSite(
        name=site.name,
        is_simulated=site.is_simulated,
        clocks=NodeClocks(
            control=site.clocks.control,
            options=site.clocks.options,
            core_voltage=None if voltage is None else CoreVoltage(voltage.chip, voltage.label),
            device=site.clocks.device,
            tolerance_pct=site.clocks.tolerance_pct,
        ),
        meters=[NodeMeter(kind=m.kind, use=m.use, options=m.options) for m in site.meters],
        settings=site.settings,
    )
