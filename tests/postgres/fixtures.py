"""Fixtures for every test folder: a schema on the common server, and clusters of one's own."""

from collections.abc import Callable, Iterator, Mapping

import pytest
from tests.postgres.cluster import SAFE, Cluster
from tests.postgres.server import Place, place, server

NewCluster = Callable[..., Cluster]


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URL of the common server."""
    with server() as url:
        yield url


@pytest.fixture
def postgres(postgres_server: str) -> Iterator[Place]:
    """A schema of one's own on the common server."""
    with place(postgres_server) as mine:
        yield mine


@pytest.fixture
def new_cluster() -> Iterator[NewCluster]:
    """Makes clusters that a test may stop and kill; `fsync` is on. They are removed after the test."""
    made: list[Cluster] = []

    def make(settings: Mapping[str, str] = SAFE) -> Cluster:
        made.append(Cluster(settings))
        made[-1].start()
        return made[-1]

    try:
        yield make
    finally:
        for cluster in made:
            cluster.remove()
