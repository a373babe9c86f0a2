"""Makes the record of a set-up (:mod:`campaign.store.setups`): the driver makes the part of the
plan; a worker adds its node and its Slurm job."""

from __future__ import annotations

import json
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path
from typing import Any

from campaign.measure.point_life import PartitionSetup
from campaign.store.mixtures import KERNEL_CODE
from kernels.host.ranks import node_name
from kernels.sources import kernel_identity
from sites.clocks.energy_preference import in_force as energy_preference_in_force
from sites.clocks.shared.journal import log_left_over
from sites.node_facts import node_facts, slurm_facts
from sites.nvml_power_model import power_models
from sites.power_limits import power_limits_w

PACKAGE = "dvfs-campaign"
ROOT = Path(__file__).parents[2]
GIT_S = 10.0


def planned_record(setup: PartitionSetup) -> dict[str, Any]:
    """The part of the record that is known before a measurement."""
    record = {
        "campaign": setup.campaign,
        "site": setup.site.model_dump(mode="json"),
        "partition": setup.partition,
        "protocol": setup.protocol.model_dump(mode="json"),
        "versions": package_versions()
        | {KERNEL_CODE: {name: kernel_identity(name) for name in setup.kernels}},
    }
    plain: dict[str, Any] = json.loads(json.dumps(record))
    return plain


def node_record(setup: PartitionSetup) -> dict[str, Any]:
    """The whole record, made on the node that measures."""
    facts: dict[str, Any] = {"node": {"name": node_name(), **node_facts()}, "slurm": slurm_facts()}
    if not setup.site.is_simulated:
        log_left_over(Path("/"))  # a limit that a killed process has set is not the node's
        if limits_w := power_limits_w():
            facts["node"]["power_limits_w"] = limits_w
        if preference := energy_preference_in_force(Path("/")):
            facts["node"]["energy_preference"] = preference
    if any(meter.kind == "nvml" for meter in setup.site.meters):
        facts["nvml_power_model"] = power_models()
    return planned_record(setup) | {name: fact for name, fact in facts.items() if fact}


def package_versions() -> dict[str, Any]:
    """The ``version`` of this package, its ``commit`` if known, and that of ``python``."""
    facts = {"version": version(PACKAGE), "commit": _commit(), "python": platform.python_version()}
    return {name: fact for name, fact in facts.items() if fact}


def _commit() -> str:
    """The commit of the checkout with this file ("-dirty": with changes), or the one from which pip
    installed the package (PEP 610); empty if there is none."""
    if (ROOT / ".git").exists():
        words = ("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
        try:
            result = subprocess.run(
                ["git", "-C", str(ROOT), *words],
                capture_output=True,
                text=True,
                timeout=GIT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return ""
        return result.stdout.strip() if result.returncode == 0 else ""
    try:
        text = distribution(PACKAGE).read_text("direct_url.json")
        return str(json.loads(text or "{}").get("vcs_info", {}).get("commit_id", ""))
    except (PackageNotFoundError, ValueError, AttributeError):
        return ""
