"""The declarations of the commands fit the functions that they call, and cost no import of those."""

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from tests.unit.cli.commands import Command as Holdfast

from holdfast.cli import exits, store_option
from holdfast.cli.activity_commands import ACTIVITY_COMMANDS
from holdfast.cli.commands import COMMANDS, FLOW_COMMANDS, root
from holdfast.cli.declarations import EXIT_CODES, VARIABLES, CliCommand

EVERY = [pytest.param(command, id=command.function) for command in (*COMMANDS, *FLOW_COMMANDS, *ACTIVITY_COMMANDS)]
HEAVY = (
    "holdfast.client",
    "holdfast.runtime",
    "holdfast.storage",
    "asyncio",
    "apsw",
    "msgspec",
    "rich",
    "tomllib",
    "yaml",
)


@pytest.mark.parametrize("command", EVERY)
def test_a_function_takes_what_its_command_declares_with_the_same_defaults(command: CliCommand) -> None:
    taken = inspect.signature(command.load()).parameters
    required = [param.name for param in command.params if param.required]
    given = command.make_context("x", ["1"] * len(required)).params
    assert set(given) == set(taken)
    assert required == [name for name, parameter in taken.items() if parameter.default is inspect.Parameter.empty]
    assert {name: value for name, value in given.items() if name not in required} == {
        name: parameter.default for name, parameter in taken.items() if name not in required
    }


@pytest.mark.parametrize("command", EVERY)
def test_every_argument_and_option_has_a_line_in_the_help(command: CliCommand) -> None:
    text = command.get_help(click.Context(command, info_name=command.name))
    for param in command.params:
        summary = param.help if isinstance(param, click.Option) else getattr(param, "summary", None)
        assert summary, param.name
        if isinstance(param, click.Option) and param.hidden:
            continue
        assert " ".join(summary.split()) in " ".join(text.split()), param.name


def test_every_exit_code_is_in_the_help_and_has_a_constant() -> None:
    codes = {value for name, value in vars(exits).items() if name.startswith("EXIT_")}
    assert codes | {0} == EXIT_CODES.keys()
    text = " ".join(root.get_help(click.Context(root, info_name="holdfast")).split())
    for code, meaning in EXIT_CODES.items():
        assert f"{code} {meaning}" in text


def test_every_environment_variable_of_the_commands_is_declared() -> None:
    sources = [path.read_text(encoding="utf-8") for path in Path(exits.__file__).parent.glob("*.py")]
    read = {name for source in sources for name in re.findall(r'environ(?:\.get\(|\[)"(\w+)"', source)}
    assert read | {store_option.VARIABLE} <= VARIABLES.keys()


def loaded_by(arguments: list[str], **environment: str) -> tuple[str, list[str]]:
    """What the command prints, and which of the heavy modules it loads."""
    script = (
        "import atexit, sys\n"
        f"heavy = {HEAVY!r}\n"
        "atexit.register(lambda: print([name for name in heavy if name in sys.modules], file=sys.stderr))\n"
        f"sys.argv = ['holdfast', *{arguments!r}]\n"
        "from holdfast.cli import main\n"
        "main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout, eval(done.stderr.splitlines()[-1])  # noqa: S307 - printed by the script above


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["worker", "--help"], ["flow", "draw", "--help"]])
def test_help_loads_neither_engine_nor_store(arguments: list[str]) -> None:
    out, heavy = loaded_by(arguments)
    assert out
    assert not heavy


@pytest.mark.parametrize(
    ("words", "candidates"),
    [
        ("holdfast wor", ["worker", "workers"]),
        ("holdfast flow ", ["run", "check", "draw"]),
        ("holdfast show --", ["--number", "--execution", "--whole", "--store", "--json", "--help"]),
    ],
)
def test_completion_of_a_word_loads_neither_engine_nor_store(words: str, candidates: list[str]) -> None:
    position = str(len(words.split(" ")) - 1)
    out, heavy = loaded_by([], _HOLDFAST_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=position)
    assert out.split() == [f"plain,{candidate}" for candidate in candidates]
    assert not heavy


def test_completion_is_shown_and_installed_once(
    holdfast: Holdfast, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SHELL", "/bin/zsh")
    (tmp_path / ".bashrc").write_text("alias x=y", encoding="utf-8")
    script = holdfast("--show-completion", "bash").out
    assert "_HOLDFAST_COMPLETE=bash_complete" in script
    assert holdfast("--show-completion").out.startswith("#compdef holdfast")
    for _ in range(2):
        assert "bash completes holdfast" in holdfast("--install-completion", "bash").out
        assert "fish completes holdfast" in holdfast("--install-completion", "fish").out
    assert (tmp_path / ".bash_completions" / "holdfast.sh").read_text(encoding="utf-8") == script
    assert (tmp_path / ".bashrc").read_text(encoding="utf-8") == "alias x=y\nsource ~/.bash_completions/holdfast.sh\n"
    assert (tmp_path / ".config" / "fish" / "completions" / "holdfast.fish").exists()
    assert "bash, zsh, fish, not for 'tcsh'" in holdfast.refused("--show-completion", "tcsh")


def test_commands_are_listed_in_their_order_with_whole_sentences() -> None:
    text = root.get_help(click.Context(root, info_name="holdfast"))
    listed = text.partition("Commands:")[2]
    assert listed.index("\n  run ") < listed.index("\n  list ") < listed.index("\n  flow ")
    assert "..." not in listed


def test_a_wrong_option_is_one_sentence_and_code_2(holdfast: Holdfast) -> None:
    assert "No such option" in holdfast.refused("list", "--nope")
    assert "Missing argument 'APP:WORKFLOW'" in holdfast.refused("run")
    assert "'many' is not a valid integer" in holdfast.refused("list", "--limit", "many")
    assert "No such command" in holdfast.refused("nope")


INTERRUPTED = """
import os, signal, sys
class Hook:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Hook())
sys.argv = ["holdfast", "list"]
from holdfast.cli import main
main()
"""


@pytest.mark.parametrize("module", ["click", "holdfast.cli.commands", "holdfast.cli.list", "msgspec"])
def test_ctrl_c_during_the_imports_of_a_command_is_no_traceback(tmp_path: Path, module: str) -> None:
    code = INTERRUPTED.format(module=module)
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.strip()) == (130, "")
