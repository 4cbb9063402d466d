"""Generated pages agree with the tables of the code."""

import pytest
from tools.generate_docs import DOCS, PAGES


@pytest.mark.parametrize("name", list(PAGES))
def test_a_generated_page_is_in_step_with_the_code(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == PAGES[name](), "run `make docs`"
