"""``--show-completion`` and ``--install-completion``: the script that completes commands in bash, zsh or fish."""

import os
from pathlib import Path
from typing import Final

import click
from click.shell_completion import get_completion_class

from holdfast.errors import UsageError

PROGRAM: Final = "holdfast"
VARIABLE: Final = "_HOLDFAST_COMPLETE"
"""Set by the script when it runs the command for candidates."""
SHELLS: Final = ("bash", "zsh", "fish")
CURRENT: Final = "current"
"""The shell in the variable SHELL."""
SCRIPTS: Final = {
    "bash": ".bash_completions/holdfast.sh",
    "zsh": ".zfunc/_holdfast",
    "fish": ".config/fish/completions/holdfast.fish",
}
"""The file of each script in the home folder. fish needs no further line to load it."""
STARTUP: Final = {
    "bash": (".bashrc", "source ~/.bash_completions/holdfast.sh"),
    "zsh": (".zshrc", "fpath+=~/.zfunc; autoload -Uz compinit; compinit"),
}
"""The start-up file of a shell, and the line in it that loads the script."""


def show(command: click.Command, shell: str) -> None:
    """Prints the script for a shell."""
    click.echo(_script(command, _checked(shell)))


def install(command: click.Command, shell: str) -> None:
    """Writes the script for a shell into the home folder, and a line into the start-up file of the shell."""
    name = _checked(shell)
    home = Path.home()
    script = home / SCRIPTS[name]
    try:
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(f"{_script(command, name)}\n", encoding="utf-8")
        if name in STARTUP:
            file, line = STARTUP[name]
            _append_once(home / file, line)
    except OSError as error:
        raise UsageError(f"the completion cannot be installed: {error}") from error
    click.echo(f"{name} completes holdfast in every new shell ({script})")


def _checked(shell: str) -> str:
    name = Path(os.environ.get("SHELL", "")).name if shell == CURRENT else shell
    if name not in SHELLS:
        found = f"not for {name!r}" if name else "and the variable SHELL is not set"
        raise UsageError(f"completion is available for {', '.join(SHELLS)}, {found}; name one, such as bash")
    return name


def _script(command: click.Command, shell: str) -> str:
    completion = get_completion_class(shell)
    if completion is None:
        raise UsageError(f"this release of click has no completion for {shell}")
    return completion(command, {}, PROGRAM, VARIABLE).source()


def _append_once(path: Path, line: str) -> None:
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    if line not in before.splitlines():
        separator = "" if not before or before.endswith("\n") else "\n"
        with path.open("a", encoding="utf-8") as file:
            file.write(f"{separator}{line}\n")
