"""The tests that the page of scenarios names exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMED = re.findall(r"`(test_\w+)::(test_\w+)`", (ROOT / "docs/reference/scenarios.md").read_text("utf-8"))


def test_the_page_names_tests() -> None:
    assert len(NAMED) > 30
    assert len(set(NAMED)) == len(NAMED)


@pytest.mark.parametrize(("module", "name"), NAMED, ids=lambda name: name)
def test_a_named_test_is_there(module: str, name: str) -> None:
    sources = [path.read_text("utf-8") for path in (ROOT / "tests").rglob(f"{module}.py")]
    assert any(f"def {name}(" in source for source in sources)
