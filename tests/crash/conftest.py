"""The store on which what is killed is run: as for the scenarios."""

from tests.scenarios.conftest import pytest_generate_tests, store_kind

__all__ = ["pytest_generate_tests", "store_kind"]
