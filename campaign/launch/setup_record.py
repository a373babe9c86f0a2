"""The record of how measurements are made (:mod:`campaign.store.setups`), as far as it is known
where it is made: the driver knows the plan, a worker its node and its Slurm job too."""

from __future__ import annotations

import json
from typing import Any

from campaign.measure.point_life import PartitionSetup
from campaign.store.mixtures import KERNEL_CODE
from campaign.versions import package_versions
from kernels.host.ranks import node_name
from kernels.sources import kernel_identity
from sites.node_facts import node_facts, slurm_facts
from sites.nvml_power_model import power_models


def planned_record(setup: PartitionSetup) -> dict[str, Any]:
    """The part that is known before anything is measured."""
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
    """The whole record, on the node that measures."""
    facts: dict[str, Any] = {"node": {"name": node_name(), **node_facts()}, "slurm": slurm_facts()}
    if any(meter.kind == "nvml" for meter in setup.site.meters):
        facts["nvml_power_model"] = power_models()
    return planned_record(setup) | {name: fact for name, fact in facts.items() if fact}
