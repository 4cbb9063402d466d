"""What the commands print is plainly visible, also as JSON, which means the same as before."""

import json
import unicodedata
from typing import Any

import pytest
from tests.unit.cli.commands import Command

from holdfast.cli.console import json_text

HARMFUL = "\x1b[31m \x7f \x85 \x9b31m \u202e \u2028 \U000e0001 plain é 漢"


@pytest.mark.parametrize("indented", [True, False])
def test_json_for_a_terminal_has_no_control_characters_and_means_the_same(indented: bool) -> None:
    value: dict[str, Any] = {HARMFUL: [HARMFUL, 1, None], "plain é": {}}
    text = json_text(value, indented=indented)
    assert json.loads(text) == value
    hidden = {character for character in text if unicodedata.category(character) in {"Cc", "Cf", "Zl", "Zp"}}
    assert hidden == ({"\n"} if indented else set())
    assert "é" in text
    assert "漢" in text


def test_commands_print_no_control_characters_as_json(holdfast: Command) -> None:
    item = "hat\x9b31m\x7f\u202e"
    ran = holdfast("run", "shop.py:checkout", "--input", json.dumps([item, 5]), "--id", "a", "--json")
    assert json.loads(ran.out)[1] == f"packed {item}"
    printed = [ran.out, *(holdfast(*words, "--json").out for words in (["show", "a"], ["list"], ["watch", "a"]))]
    assert all(printed)
    assert not [text for text in printed if any(harm in text for harm in "\x9b\x7f\u202e")]


@pytest.mark.parametrize("command", [["run", "shop.py:total", "--input", "[[1]]"], ["worker", "shop.py"]])
def test_a_folder_that_is_not_there_is_named_and_not_made(holdfast: Command, command: list[str]) -> None:
    done = holdfast(*command, "--store", "no/such/shop.db")
    assert done.code == 3, done
    assert "there is no folder no/such for the store shop.db; make it, or correct the path" in " ".join(
        done.err.split()
    )
    assert not (holdfast.folder / "no").exists()
