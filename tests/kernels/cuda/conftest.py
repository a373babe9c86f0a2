"""What the tests of the GPU kernels share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def host_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the sources compiled for the host are kept, each for all tests."""
    return tmp_path_factory.mktemp("host")
