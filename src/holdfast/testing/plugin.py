"""The pytest plugin: a fixture for environments. It imports Holdfast when a test first uses the fixture."""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from holdfast.testing.environment import Environment


@pytest.fixture
def holdfast_environment() -> "type[Environment]":
    """The class `Environment`: ``holdfast_environment(workflows=[...]).run_sync(scenario)``, or with ``async with``."""
    from holdfast.testing.environment import Environment  # noqa: PLC0415 - only tests that use it pay for the import

    return Environment
