"""The policy file: picks by site, as a job's prolog or script looks them up."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dvfs.errors import ArgumentError
from dvfs.files import read_input, write_output
from dvfs.printable import rounded


def policy_origin(store: str, data_id: str) -> dict[str, Any]:
    """Where a policy is from: the store, a hash of its measurements, the date, the version."""
    return {
        "store": {"path": str(Path(store).resolve()), "data_id": data_id},
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "version": version("dvfs-campaign"),
    }


def write_site_policy(path: Path, site: str, picks: Mapping[str, Any]) -> None:
    """Write a site's picks to a policy file; other sites that it holds stay as they are.

    ``picks``: as :meth:`campaign.results.tables.Predictions.as_policy` gives them.

    Raises:
        ArgumentError: the file is there and is not a policy, or it cannot be written.
    """
    if path.is_dir():
        raise ArgumentError(f"{path}: is a folder; name a JSON file")
    try:
        policy = json.loads(read_input(path)) if path.is_file() else {}
        policy.setdefault("sites", {})[site] = rounded(picks)
    except OSError as error:
        raise ArgumentError(
            f"{path}: cannot be read ({error.strerror}); name another file"
        ) from None
    except (ValueError, AttributeError, TypeError):
        raise ArgumentError(f"{path}: exists and is not a policy file; name another file") from None
    try:
        write_output(path, json.dumps(policy, indent=1) + "\n")
    except OSError as error:
        raise ArgumentError(
            f"{path}: cannot be written ({error.strerror}); name another file"
        ) from None
