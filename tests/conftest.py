"""Profiles of Hypothesis (`dev` for every save, `ci` for every landing, `nightly`), PostgreSQL servers, and signals."""

import os
import signal
from typing import Final

import pytest
from hypothesis import HealthCheck, Phase, settings
from tests.postgres import places
from tests.postgres.fixtures import new_cluster, postgres, postgres_server

__all__ = ["new_cluster", "postgres", "postgres_server"]

_common = settings(deadline=None, suppress_health_check=(HealthCheck.too_slow,))

settings.register_profile("dev", _common, max_examples=50, stateful_step_count=30)
settings.register_profile(
    "ci",
    _common,
    max_examples=200,
    stateful_step_count=50,
    print_blob=True,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # shrinking a simulation takes longer than the time-out
)
settings.register_profile("nightly", _common, max_examples=10_000, stateful_step_count=100, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

places.begin_run()
os.environ.pop("COLUMNS", None)
"""pytest-xdist sets the width of its workers, and the command would fold its lines at it."""

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts `make test &` with SIGINT ignored, and a program that a test starts would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


SERVERS: Final = {"postgres_server", "new_cluster"}
"""Fixtures that start a PostgreSQL server."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that need a PostgreSQL server as slow: `make check` starts none. Leave out long ones."""
    if os.environ.get("HYPOTHESIS_PROFILE") != "nightly" and os.environ.get("HOLDFAST_TEST_STORE") != "postgres":
        items[:] = [item for item in items if item.get_closest_marker("nightly") is None]
    for item in items:
        if isinstance(item, pytest.Function) and not SERVERS.isdisjoint(item.fixturenames):
            item.add_marker(pytest.mark.slow)


def pytest_unconfigure() -> None:
    """Remove the files of the servers of this run."""
    places.end_run()
