"""One demo for all tests of the documentation."""

from __future__ import annotations

import pytest

from tests.docs.workplace import Workplace


@pytest.fixture(scope="session")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    """A folder in which ``campaign demo`` has run."""
    return Workplace(tmp_path_factory.mktemp("pages"))
