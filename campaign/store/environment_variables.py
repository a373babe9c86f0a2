"""Environment variables of partitions in a store: an HMAC replaces each value.

A value may be a token. With the same key the same value has the same HMAC, so that a changed value
is a changed set-up. A short value could be found by trying all, but only with the key, which only
its owner can read::

    variables.key    32 random bytes, mode 0600; made when a site has variables
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from campaign.store.layout import Store
from dvfs.files import read_regular, replacing

if TYPE_CHECKING:
    from sites.site_file import Site

KEY_FILE = "variables.key"
KEY_BYTES = 32
HIDDEN = re.compile(r"hmac-sha256:([0-9a-f]{8}):[0-9a-f]{64}")
"""The form of a hidden value: it names the key by the start of the key's hash."""


def without_values(
    store: Store, site: Mapping[str, Any], *, keep_key: bool = False
) -> dict[str, Any]:
    """A site's fields as in JSON, without the values of its partitions' variables.

    ``keep_key``: create the store's key if there is none; False uses a temporary key instead, with
    which values can only be compared with each other.

    Raises:
        OSError: the key cannot be written.
    """
    key = functools.cache(lambda: _key(store, keep_key))
    partitions = {}
    for name, partition in site.get("partitions", {}).items():
        environment = partition.get("environment", {})
        variables = {
            variable: value if key_of(value) else _hidden(key(), variable, value)
            for variable, value in environment.get("variables", {}).items()
        }
        partitions[name] = partition
        if variables:
            partitions[name] = partition | {"environment": environment | {"variables": variables}}
    return {**site, "partitions": partitions}


def recorded_site(store: Store, site: Site) -> Site:
    """A site without values of variables, by the driver; raises as :func:`without_values`."""
    fields = site.model_dump(mode="json")
    return type(site).model_validate(without_values(store, fields, keep_key=True))


def key_of(hidden: str) -> str | None:
    """The name of the key that hides a value; None for a value that is not hidden. Values hidden by
    different keys cannot be compared."""
    match = HIDDEN.fullmatch(hidden)
    return match[1] if match else None


def _hidden(key: bytes, variable: str, value: str) -> str:
    name = hashlib.sha256(key).hexdigest()[:8]
    digest = hmac.new(key, f"{variable}={value}".encode(), hashlib.sha256).hexdigest()
    return f"hmac-sha256:{name}:{digest}"


def _key(store: Store, keep: bool) -> bytes:
    path = store.root / KEY_FILE
    with contextlib.suppress(OSError):  # there is none, or another user may not read it
        key = read_regular(path)
        if len(key) == KEY_BYTES:
            return key
    if not keep:
        return _temporary_key()
    key = secrets.token_bytes(KEY_BYTES)
    with replacing(path, mode=0o600) as file:
        file.write(key)
    return key


@functools.cache
def _temporary_key() -> bytes:
    return secrets.token_bytes(KEY_BYTES)
