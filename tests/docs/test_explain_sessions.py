"""The sessions on the architecture page are the output of the command."""

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.cli.commands import root

PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"
SESSIONS = re.findall(r"```console\n\$ holdfast (.*?)\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)


@pytest.mark.parametrize(("command", "printed"), SESSIONS, ids=[command for command, _ in SESSIONS])
def test_a_session_is_what_the_command_prints(command: str, printed: str) -> None:
    result = CliRunner().invoke(root, shlex.split(command))
    assert result.exit_code == 0
    assert result.output == printed


def test_the_page_has_sessions() -> None:
    assert len(SESSIONS) >= 2
