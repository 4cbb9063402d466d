"""Names in documents and examples exist, and the page on configuration has every option with its default."""

import inspect
import re
from pathlib import Path
from typing import Any

import click
import pytest

import holdfast as hf
from holdfast import errors
from holdfast.cli.commands import root

ROOT = Path(__file__).parents[2]
PAGES = [
    path
    for path in sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*")})
    if path.suffix in {".md", ".py"}
]
CONFIGURATION = (ROOT / "docs" / "guide" / "configuration.md").read_text("utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_names_of_the_library_in_a_page_exist(page: Path) -> None:
    text = page.read_text("utf-8")
    assert {name for name in re.findall(r"\bhf\.([A-Za-z_]\w*)", text) if name not in hf.__all__} == set()
    assert {name for name in re.findall(r"\bholdfast\.errors\.(\w+)", text) if not hasattr(errors, name)} == set()


@pytest.mark.parametrize("callee", [hf.Engine, hf.Worker, hf.connect, hf.workflow, hf.activity])
def test_the_page_on_configuration_has_every_option(callee: Any) -> None:
    options = [
        name
        for name, parameter in inspect.signature(callee).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not name.startswith("_")
    ]
    assert options
    assert [name for name in options if f"{name}=" not in CONFIGURATION] == []


def test_the_page_on_configuration_has_every_option_of_the_worker_command() -> None:
    worker = root.commands["worker"]
    assert isinstance(worker, click.Command)
    names = [max(option.opts, key=len) for option in worker.params if isinstance(option, click.Option)]
    assert [name for name in names if name not in CONFIGURATION and f"--no-{name[2:]}" not in CONFIGURATION] == []


@pytest.mark.parametrize(
    ("option", "shown"),
    [("max_activities", "100"), ("cache_size", "1,000"), ("lease", "8 s"), ("loop_timeout", "300 s")],
)
def test_a_default_on_the_page_is_the_default_of_the_engine(option: str, shown: str) -> None:
    default = inspect.signature(hf.Engine).parameters[option].default
    [row] = [line for line in CONFIGURATION.splitlines() if line.startswith(f"| `{option}=`")]
    assert f"| {shown} |" in row
    assert f"{default:,.0f}" == shown.removesuffix(" s")
