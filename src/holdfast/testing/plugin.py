"""The pytest plugin: a fixture that makes environments. Nothing of Holdfast is loaded until a test asks for it."""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from holdfast.testing.environment import Environment


@pytest.fixture
def holdfast_environment() -> "type[Environment]":
    """Makes an environment: ``holdfast_environment(workflows=[...]).run_sync(scenario)``, or ``async with`` it."""
    from holdfast.testing.environment import Environment  # noqa: PLC0415 - no test run without it pays for it

    return Environment
