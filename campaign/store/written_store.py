"""A folder of Zarr arrays with a known list of files, for Zarr and XArray."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from zarr.storage import LocalStore, WrapperStore

from campaign.store.layout import OPEN_AGAIN, DamagedStoreError

if TYPE_CHECKING:
    from zarr.core.buffer import Buffer


class WrittenStore(WrapperStore[LocalStore]):
    """A folder of Zarr arrays with a known list of files. A missing file is an error; Zarr alone
    would return missing values."""

    def __init__(self, folder: Path, files: frozenset[str]) -> None:
        super().__init__(LocalStore(folder, read_only=True))
        self._files = files

    async def get(self, key: str, *how: Any, **options: Any) -> Buffer | None:
        """See :meth:`zarr.abc.store.Store.get`."""
        path = self._store.root / key
        data = None
        if key not in self._files or path.is_file():  # a device of this name may have no end
            data = await super().get(key, *how, **options)
        if data is None and key in self._files:
            raise DamagedStoreError(f"{path}: is missing; {OPEN_AGAIN}")
        return data
