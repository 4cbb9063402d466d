"""The sessions of the README are the output of the command."""

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.cli.commands import root

ROOT = Path(__file__).parents[2]
SESSIONS = re.findall(r"```console\n\$ holdfast (.*?)\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)


@pytest.mark.parametrize(("command", "printed"), SESSIONS, ids=[command for command, _ in SESSIONS])
def test_a_session_in_the_readme_is_what_the_command_prints(command: str, printed: str) -> None:
    result = CliRunner().invoke(root, shlex.split(command))
    assert result.exit_code == 0
    assert result.output == printed


def test_the_readme_has_sessions() -> None:
    assert len(SESSIONS) >= 2
