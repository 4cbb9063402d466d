"""The store that the tests of workers share out: they reach into it through its contract only, so any store will do."""

from pathlib import Path

import pytest


@pytest.fixture
def store(tmp_path: Path) -> str:
    """Where the store is, as a person names it."""
    return str(tmp_path / "shop.db")
