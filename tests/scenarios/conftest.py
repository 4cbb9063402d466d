"""The store on which a scenario is run."""

from collections.abc import Iterator

import pytest
from tests.scenarios.kinds import MEMORY, POSTGRES, SQLITE, in_memory, kinds_of, on_postgres


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a scenario on each store of its module. Beside SQLite, the other stores wait for `make test`."""
    kinds = kinds_of(metafunc.definition.path.stem)
    if kinds != [SQLITE]:
        marked = [
            pytest.param(kind, marks=[pytest.mark.slow] if SQLITE in kinds and kind != SQLITE else ()) for kind in kinds
        ]
        metafunc.parametrize("store_kind", marked, indirect=True)


@pytest.fixture(autouse=True)
def store_kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Another store instead of SQLite, where it is asked for. Without `autouse`, pytest 9 would not set it up."""
    if getattr(request, "param", None) == MEMORY:
        with in_memory(monkeypatch):
            yield
    elif getattr(request, "param", None) == POSTGRES:
        with on_postgres(request.getfixturevalue("postgres_server"), monkeypatch):
            yield
    else:
        yield
