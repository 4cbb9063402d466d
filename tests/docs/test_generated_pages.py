"""Generated pages agree with the tables of the code."""

from pathlib import Path

import pytest
from benchmarks import recorded
from tools.generate_docs import ARCHITECTURE, DOCS, PAGES, architecture


@pytest.mark.parametrize("name", list(PAGES))
def test_a_generated_page_is_in_step_with_the_code(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == PAGES[name](), "run `make docs`"


def test_the_architecture_page_draws_the_layers_of_the_import_contract() -> None:
    page = ARCHITECTURE.read_text(encoding="utf-8")
    assert "```mermaid" in page
    assert page == architecture(), "run `make docs`"


@pytest.mark.parametrize("path", recorded.files(), ids=lambda path: path.name)
def test_pages_and_drawings_have_the_recorded_figures(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == recorded.files()[path], "run `make docs`"
