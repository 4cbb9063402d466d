"""``holdfast flow`` as a person meets it: what it prints and how it ends."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast.cli.commands import root
from holdfast.cli.main import main

SAMPLES = Path(__file__).parents[1] / "flows" / "samples"
SHOP = """
import holdfast as hf

@hf.activity
def pack(item: str) -> str:
    return item
"""


def flow(*arguments: str) -> Result:
    return CliRunner().invoke(root, ["flow", *arguments])


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    sys.modules.pop("shop", None)


def test_a_flow_that_is_fine_is_said_to_be_fine() -> None:
    done = flow("check", str(SAMPLES / "order.yaml"))
    assert done.exit_code == 0
    warning, verdict = done.output.splitlines()
    assert 'order.yaml:8: warning: reserve: no module "shop" can be found here for "shop.reserve"' in warning
    assert "order.yaml is fine: flow order, 10 activities; activities were not checked" in verdict


def test_every_line_of_the_broken_flow_is_reported_and_the_exit_code_says_so() -> None:
    done = flow("check", "--json", str(SAMPLES / "broken.yaml"))
    assert done.exit_code == 1
    answer = json.loads(done.output)
    assert answer["fine"] is False
    assert sorted({problem["line"] for problem in answer["problems"]}) == list(range(5, 17))
    assert flow("check", str(SAMPLES / "broken.yaml")).output.splitlines()[-1].startswith("11 problems in ")


def test_problems_that_are_left_out_are_counted(tmp_path: Path) -> None:
    several = "".join(f"  n{number}: {{run: x, after: nobody_at_all}}\n" for number in range(150))
    (tmp_path / "many.yaml").write_text(f"flow: f\nactivities:\n  start: {{trigger: true}}\n{several}")
    lines = flow("check", "many.yaml").output.splitlines()
    assert lines[-2:] == ["many.yaml: and 50 more", "150 problems in many.yaml"]
    assert len(lines) == 102
    assert json.loads(flow("check", "--json", "many.yaml").output)["left_out"] == 50


def test_names_are_checked_against_an_application(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP, encoding="utf-8")
    done = flow("check", "--app", "shop.py", str(SAMPLES / "broken.yaml"))
    assert done.exit_code == 1
    assert done.output.splitlines()[-1].startswith("12 problems in ")
    assert 'error: a: there is no activity "no.such.activity"' in done.output
    (tmp_path / "fine.yaml").write_text(
        "flow: f\nactivities:\n  a: {trigger: true}\n  b: {run: shop.pack, after: a}\n  c: {run: pack, after: a}\n"
    )
    assert flow("check", "--app", "shop.py", "fine.yaml").output == "fine.yaml is fine: flow f, 3 activities\n"
    assert "not checked" in flow("check", "fine.yaml").output


def test_arguments_and_children_are_checked_against_an_application(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP, encoding="utf-8")
    head = "flow: f\nactivities:\n  a: {trigger: true}\n"
    (tmp_path / "wrong.yaml").write_text(head + "  b: {run: shop.pack, after: a, input: {itme: a.input}}\n")
    done = flow("check", "--app", "shop.py", "wrong.yaml")
    assert done.exit_code == 1
    assert 'wrong.yaml:4: error: b: "shop.pack" has no parameter "itme" (did you mean item?)' in done.output
    (tmp_path / "child.yaml").write_text(head + "  b: {flow: nosuchflow, after: a}\n")
    done = flow("check", "--app", "shop.py", "child.yaml")
    warning, verdict = done.output.splitlines()
    assert (done.exit_code, verdict) == (0, "child.yaml is fine: flow f, 2 activities")
    assert 'child.yaml:4: warning: b: there is no flow or workflow "nosuchflow" here' in warning


def test_a_drawing_is_printed_or_written(tmp_path: Path) -> None:
    file = str(SAMPLES / "fox.yaml")
    assert flow("draw", file).output.startswith("<svg ")
    assert flow("draw", "--mermaid", file).output.startswith("flowchart TD\n")
    assert flow("draw", file, "--output", "fox.svg").output == "fox.svg: flow fox, 7 activities\n"
    assert (tmp_path / "fox.svg").read_text(encoding="utf-8") == flow("draw", file).output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["check", "none.yaml"], "none.yaml: it cannot be read"),
        (["check", "--app", "none.py", str(SAMPLES / "fox.yaml")], "there is no file 'none.py'"),
        (["draw", str(SAMPLES / "broken.yaml")], "did you mean start?"),
        (["draw", str(SAMPLES / "fox.yaml"), "--output", "no/such/folder.svg"], "cannot be written"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(
    arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["holdfast", "flow", *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    assert said in capsys.readouterr().err
