"""The store on which a scenario is run."""

from collections.abc import Iterator

import pytest
from tests.scenarios.kinds import POSTGRES, kinds_of, on_postgres


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    kinds = kinds_of(metafunc.definition.path.stem)
    if kinds != ["sqlite"]:
        metafunc.fixturenames.append("store_kind")
        metafunc.parametrize("store_kind", kinds, indirect=True)


@pytest.fixture
def store_kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """PostgreSQL instead of SQLite, where it is asked for."""
    if request.param == POSTGRES:
        with on_postgres(request.getfixturevalue("postgres_server"), monkeypatch):
            yield
    else:
        yield
