"""``holdfast run``: arguments, results, going on, refusals, and Ctrl-C."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.forking.processes import program
from tests.forking.processes import run as forked
from tests.unit.cli.commands import Command, sql

from holdfast.audit.auditor import audit

RESULT = ["charged 5", "packed hat"]


@pytest.mark.parametrize(
    ("workflow", "given", "expected"),
    [
        ("checkout", '{"item": "hat", "cents": 5}', RESULT),
        ("checkout", '["hat", 5]', RESULT),
        ("checkout", '["hat"]', ["charged 300", "packed hat"]),
        ("buy", '{"item": "hat", "cents": 5}', "packed hat"),
        ("buy", '{"order": {"item": "hat", "cents": 5}}', "packed hat"),
        ("buy", '[{"item": "hat", "cents": 5}]', "packed hat"),
        ("order-by-value", '{"item": "hat", "cents": 5}', "packed hat"),
        ("total", "[1, 2, 3]", 6),
        ("total", "[[1, 2, 3]]", 6),
        ("total", "[4]", 4),
        ("total", "[]", 0),
        ("total", '{"numbers": [7]}', 7),
    ],
)
def test_arguments_by_name_by_position_or_as_the_one_value(
    holdfast: Command, workflow: str, given: str, expected: object
) -> None:
    done = holdfast("run", f"shop.py:{workflow}", "--input", given, "--json")
    assert (done.code, json.loads(done.out), done.err) == (0, expected, "")


def test_steps_and_result_are_printed_with_at_most_five_other_lines(holdfast: Command) -> None:
    done = holdfast("run", "shop.py:checkout", "--input", '{"item": "hat", "cents": 5}', "--id", "order-1")
    lines = done.out.splitlines()
    assert done.code == 0
    assert lines[0] == "checkout order-1 in holdfast.db"
    steps = [line for line in lines if re.match(r"  [✓+] (charge|pack|timer 1)\b", line)]
    assert len(steps) == 3
    assert len(lines) - len(steps) <= 5
    assert lines[-1] == 'result ["charged 5","packed hat"]'


def test_R5_a_workflow_by_name_is_its_highest_version_and_by_function_that_one(holdfast: Command) -> None:
    versions = "\n".join(
        f"""
@hf.workflow(name="ships", version="{version}")
async def ships_{version}() -> str:
    return hf.info().version
"""
        for version in (9, 10, 2)
    )
    (holdfast.folder / "versions.py").write_text(f"import holdfast as hf\n{versions}", encoding="utf-8")
    for target, expected in (("versions.py:", "10"), ("versions.py:ships", "10"), ("versions.py:ships_2", "2")):
        assert json.loads(holdfast("run", target, "--json").out) == expected


def test_an_activity_of_another_queue_is_served_too(holdfast: Command) -> None:
    assert holdfast("run", "shop.py:buy", "-i", '{"item": "a", "cents": 1}', "--json").out == '"packed a"\n'


def test_a_module_by_its_dotted_name(holdfast: Command) -> None:
    assert holdfast("run", "shop:total", "--input", "[[1]]", "--json").out == "1\n"


def test_G3_the_same_id_again_gives_the_result_and_runs_nothing(holdfast: Command) -> None:
    first = holdfast("run", "shop.py:checkout", "--input", '["hat", 5]', "--id", "a", "--json")
    without_input = holdfast("run", "shop.py:checkout", "--id", "a")
    by_name = holdfast("run", "shop.py:checkout", "--input", '{"cents": 5, "item": "hat"}', "--id", "a", "--json")
    assert first.out == by_name.out
    assert "(ended before)" in without_input.out
    assert without_input.out.count("recorded before, not run again") == 3
    listed = json.loads(holdfast("list", "--json").out)
    assert len(listed) == 1


def test_G3_the_same_id_with_other_input_or_workflow_is_refused(holdfast: Command) -> None:
    holdfast("run", "shop.py:checkout", "--input", '["hat", 5]', "--id", "a", "--json")
    assert "with a different input" in holdfast.refused("run", "shop.py:checkout", "--input", '["cap"]', "--id", "a")
    assert "taken by an instance of 'checkout'" in holdfast.refused("run", "shop.py:total", "--id", "a")


def test_G3_a_policy_makes_a_new_instance_and_the_old_one_is_kept(holdfast: Command) -> None:
    first = ["run", "shop.py:total", "--input", "[[1]]", "--id", "a"]
    assert holdfast(*first, "--json", "--policy", "reuse").out == "1\n"
    again = holdfast("run", "shop.py:total", "--input", "[[2]]", "--id", "a", "--policy", "reuse")
    assert "(a new instance; the earlier one is kept)" in again.out
    assert "recorded before" not in again.out
    assert again.out.splitlines()[-1] == "result 2"
    assert holdfast("run", "shop.py:total", "--id", "a", "--json").out == "2\n", "without a policy it is the newest"
    assert holdfast(*first, "--json", "--policy", "terminate_existing").out == "1\n"
    listed = json.loads(holdfast("list", "--json").out)
    assert [record["superseded_at"] is None for record in listed] == [True, False, False]
    assert len({record["number"] for record in listed}) == 3
    lines = holdfast("list").out.splitlines()
    assert [
        line.endswith(f"earlier, number {record['number']}") for line, record in zip(lines[1:], listed, strict=True)
    ] == [
        False,
        True,
        True,
    ]
    shown = holdfast("show", "a").out.splitlines()
    assert shown[2].startswith("2 earlier instances with this id")
    assert json.loads(holdfast("show", "a", "--json").out)["earlier"] == 2
    old = str(listed[1]["number"])
    earlier = holdfast("show", "a", "--number", old).out
    assert f"an earlier instance, number {old}; a newer one has the id since " in earlier
    assert earlier.splitlines()[-1] == "result 2"
    for wrong in ("77", "-1", str(10**30)):
        assert f"no instance has the id 'a' and the number {wrong}" in holdfast.refused("show", "a", "--number", wrong)
    assert holdfast("verify").code == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["--input", "[[1]]", "--policy", "replace"],
            "'replace' is not a valid policy for ids; use one of idempotent, reuse",
        ),
        (["--policy", "terminate_existing"], "numbers"),
    ],
)
def test_a_policy_that_is_none_or_lacks_an_input_is_one_sentence(
    holdfast: Command, arguments: list[str], sentence: str
) -> None:
    holdfast("run", "shop.py:total", "--input", "[[1]]", "--id", "a", "--json")
    assert sentence in holdfast.refused("run", "shop.py:total", "--id", "a", *arguments)
    assert len(json.loads(holdfast("list", "--json").out)) == 1


def test_a_failure_is_a_sentence_and_exit_code_1(holdfast: Command) -> None:
    done = holdfast("run", "shop.py:checkout", "--input", '["hat", -5]', "--id", "a")
    assert done.code == 1
    assert "\x1b" not in done.out + done.err
    assert r"holdfast: a failed: Declined: [red]no[/red] money \x1b[31m for -5" in done.err
    assert re.search(r"attempt 1: Declined: .*tried again", done.out)
    assert re.search(r"failed after .*turns", done.out)


def test_failures_that_are_on_screen_are_not_logged_as_well(holdfast: Command) -> None:
    words = [f"{holdfast.folder}/shop.py:checkout", "--input", '["hat", -5]', "--store", f"{holdfast.folder}/a.db"]
    shown = forked("holdfast.cli:main", "run", *words, "--id", "a")
    assert (shown.code, len(shown.complaints.splitlines())) == (1, 1), shown.complaints
    logged = forked("holdfast.cli:main", "run", *words, "--id", "b", "--json")
    assert logged.complaints.count("of activity charge of instance b failed") == 2


def test_one_turn_is_one_turn(holdfast: Command) -> None:
    assert re.search(r"completed after .*, 1 turn\n", holdfast("run", "shop.py:total", "-i", "[[1]]").out)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["shop.py:checkout"], "argument `item` is missing and has no default; send it with --input"),
        (["shop.py:buy", "-i", "hat"], "hat is not valid JSON; a string has quotes: '\"hat\"'"),
        (["shop.py:checkout", "--id", "new"], "argument `item` is missing"),
        (["x" * 300 + ".py:checkout"], "cannot be read"),
        (["shop.py:checkout", "-i", '{"item": 1}'], "argument `item`"),
        (["shop.py:checkout", "-i", '{"item": "a", "colour": 1}'], "no argument 'colour'; its arguments: item, cents"),
        (["shop.py:checkout", "-i", '{"itme": "a"}'], "has no argument 'itme' (did you mean item?); its arguments"),
        (["shop.py:total", "-i", '{"nubmers": [1]}'], "has no argument 'nubmers' (did you mean numbers?)"),
        (["shop.py:buy", "-i", '{"ordr": {}}'], "item"),
        (["shop.py:checkout", "-i", '["a", 1, 2]'], "takes 2 arguments by position"),
        (["shop.py:checkout", "-i", '"hat"'], "must be a JSON object by name or an array"),
        (["shop.py:checkout", "-i", '{"item": "a", "item": "b"}'], "refused"),
        (["shop.py:checkout", "-i", "[" * 100 + "]" * 100], "nests deeper"),
        (["shop.py:checkout", "-i", '["a", NaN]'], "refused"),
        (["shop.py:checkout", "-i", "{"], "refused"),
        (["shop.py:checkout", "-i", ""], "refused"),
        (["shop.py:buy", "-i", '{"item": "hat"}'], "cents"),
        (["shop.py:total", "-i", '"x"'], "argument `numbers`"),
        (["shop.py:nothing"], "has no workflow 'nothing'; it has shop.py:checkout"),
        (["shop.py:not_marked"], "is not marked with @hf.workflow"),
        (["shop.py"], "has several workflows; name one"),
        (["shop:"], "has several workflows"),
        ([":checkout"], "names no workflow"),
        (["gone.py:checkout"], "there is no file 'gone.py'"),
        (["gone.module:checkout"], "there is no module 'gone.module'"),
        (["a b:checkout"], "neither a file that ends in .py nor the name of a module"),
        (["shop.py:total", "-i", "[]", "--id", ""], "must not be empty"),
        (["shop.py:total", "-i", "[]", "--id", "a\nb"], "must not contain"),
        (["shop.py:total", "-i", "[]", "--id", "x" * 300], "at most 255 bytes"),
        (["shop.py:total", "-i", "[]", "--store", ""], "is not the path of a store"),
        (["shop.py:total", "-i", "[]", "--store", "mysql://host/db"], "nor a postgresql:// URL"),
        (["shop.py:total", "-i", "[]", "--store", "postgresql://host/db?shema=x"], "did you mean schema?"),
        (["shop.py:total", "-i", "[]", "--store", ":memory:"], "ends with its process"),
    ],
)
def test_wrong_input_is_one_sentence_and_makes_no_store(holdfast: Command, arguments: list[str], sentence: str) -> None:
    assert sentence in holdfast.refused("run", *arguments)
    assert [path.name for path in holdfast.folder.iterdir() if path.name.startswith("holdfast.db")] == []


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("import nothing_of_that_name", "No module named 'nothing_of_that_name' (line 1 of broken.py)"),
        ("x = 1\nx.y", "AttributeError: 'int' object has no attribute 'y' (line 2 of broken.py)"),
        ("def f(:", "SyntaxError"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("import holdfast as hf\n@hf.workflow\ndef f(): ...", "@hf.workflow marks an `async def`"),
        ("x = 1", "has no workflow; mark an async function"),
    ],
)
def test_code_that_cannot_be_imported_is_a_sentence_with_its_line(holdfast: Command, text: str, sentence: str) -> None:
    (holdfast.folder / "broken.py").write_text(text, encoding="utf-8")
    assert sentence in holdfast.refused("run", "broken.py:f")
    assert sentence in holdfast.refused("run", "broken:f")


def test_a_file_with_the_name_of_a_loaded_module_is_refused(holdfast: Command) -> None:
    (holdfast.folder / "json.py").write_text("", encoding="utf-8")
    assert "has the name of another module, 'json'" in holdfast.refused("run", "json.py:f")


def test_a_store_that_is_something_else_is_exit_code_3(holdfast: Command) -> None:
    (holdfast.folder / "text.db").write_text("not a database, and long enough to be one " * 50, encoding="utf-8")
    done = holdfast("run", "shop.py:total", "-i", "[]", "--store", "text.db")
    assert done.code == 3
    assert "text.db" in done.err


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_W10_a_signal_ends_a_run_and_its_lease_and_the_same_command_continues(
    tmp_path: Path, number: signal.Signals
) -> None:
    (tmp_path / "slow.py").write_text(
        "import asyncio, pathlib\nimport holdfast as hf\n"
        "@hf.activity\nasync def wait(marker: str) -> str:\n"
        "    if pathlib.Path(marker).exists():\n        return 'again'\n"
        "    pathlib.Path(marker).touch()\n    print('here', flush=True)\n"
        "    await asyncio.sleep(60)\n    return 'slept'\n"
        "@hf.workflow\nasync def nap() -> str:\n    return await wait('marker')\n",
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "holdfast", "run", "slow.py:nap", "--id", "my nap"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with program(command, cwd=tmp_path, env=environment) as process:
        assert process.stdout is not None
        assert any("here" in line for line in process.stdout)
        process.send_signal(number)
        _, told = process.communicate(timeout=30)
    assert process.returncode == 130
    assert sql(tmp_path / "holdfast.db", "SELECT state FROM workers") == [("INACTIVE",)], "it has left"
    assert told.splitlines()[-2:] == [
        "Stopped. Everything up to here is recorded; continue with:",
        "holdfast run slow.py:nap --id 'my nap'",
    ]
    assert "Traceback" not in told
    again = subprocess.run(
        [*command, "--json"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=30, check=True
    )
    assert again.stdout == '"again"\n'
    assert audit(tmp_path / "holdfast.db") == []


@pytest.mark.slow
def test_A5_ctrl_c_does_not_wait_for_a_body_that_blocks_its_thread(tmp_path: Path) -> None:
    (tmp_path / "blocked.py").write_text(
        "import threading\nimport holdfast as hf\n"
        "@hf.activity\ndef block() -> None:\n    print('here', flush=True)\n    threading.Event().wait(1000)\n"
        "@hf.workflow\nasync def blocks() -> None:\n    await block()\n",
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "holdfast", "run", "blocked.py:blocks", "--id", "b"]
    with program(command, cwd=tmp_path) as process:
        assert process.stdout is not None
        assert any("here" in line for line in process.stdout)  # the command prints, too, perhaps on the same line
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "continue with" in told


UNGUARDED = """
import asyncio
import holdfast as hf

@hf.workflow
async def w() -> int:
    return 1

async def main() -> None:
    async with {opened}:
        pass

asyncio.run(main())
"""


@pytest.mark.parametrize("opened", ["hf.Engine('mine.db', workflows=[w])", "hf.connect('mine.db')"])
@pytest.mark.parametrize("words", [["run", "unguarded.py:w"], ["run", "unguarded:w"], ["worker", "unguarded.py"]])
def test_a_program_that_starts_an_engine_when_it_is_imported_is_refused(
    holdfast: Command, words: list[str], opened: str
) -> None:
    (holdfast.folder / "unguarded.py").write_text(UNGUARDED.format(opened=opened), encoding="utf-8")
    said = holdfast.refused(*words)
    assert "cannot be imported: its import starts an engine or a client" in said
    assert 'if __name__ == "__main__": asyncio.run(main()) (line 13 of unguarded.py)' in said
    assert not list(holdfast.folder.glob("*.db*"))


@pytest.mark.parametrize("source", ["settings.py:w", "settings:w"])
def test_an_import_may_run_an_event_loop_that_opens_no_engine(holdfast: Command, source: str) -> None:
    program = "import asyncio\nimport holdfast as hf\nasync def load() -> int: return 7\nLOADED = asyncio.run(load())\n"
    program += "@hf.workflow\nasync def w() -> int: return LOADED\n"
    (holdfast.folder / "settings.py").write_text(program, encoding="utf-8")
    assert holdfast("run", source, "--json").out == "7\n"
