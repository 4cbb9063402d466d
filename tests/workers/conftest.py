"""The store that the tests of workers share out: they reach into it through its contract only, so any store will do."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.workers.processes import folder_of


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Where the store is, as a person names it."""
    if request.param == "sqlite":
        yield str(tmp_path / "shop.db")
        return
    url = str(request.getfixturevalue("postgres").url)
    yield url
    shutil.rmtree(folder_of(url))
