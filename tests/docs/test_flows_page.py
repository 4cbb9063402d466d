"""The flows on the page about flows load without problems, and its drawings show them."""

import re
from pathlib import Path

import pytest
from tools.generate_docs import GUIDE, drawings

import holdfast as hf

PAGE = (GUIDE / "flows.md").read_text(encoding="utf-8")
FLOWS = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("text", FLOWS, ids=lambda text: str(text).partition("\n")[0])
def test_a_flow_on_the_page_is_fine(text: str) -> None:
    flow = hf.Flow.parse(text)
    assert not flow.warnings
    assert hf.Flow.parse(flow.to_yaml()).hash == flow.hash


@pytest.mark.parametrize("name", sorted(drawings()))
def test_a_drawing_is_in_step_with_the_page(name: str) -> None:
    assert (GUIDE / "drawings" / name).read_text(encoding="utf-8") == drawings()[name], "run `make docs`"


def test_the_page_shows_every_drawing_and_no_other() -> None:
    shown = re.findall(r"\]\(drawings/(.*?)\)", PAGE)
    assert sorted(shown) == sorted(drawings())
    assert sorted(path.name for path in Path(GUIDE / "drawings").iterdir()) == sorted(shown)
