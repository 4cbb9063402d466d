"""``holdfast list`` and ``holdfast show``: what they tell, where they look, and that looking changes nothing."""

import json
import re
from pathlib import Path

import pytest
from tests.unit.cli.commands import Command, sql

from holdfast.cli.commands import COMMANDS


@pytest.fixture
def filled(holdfast: Command) -> Command:
    """A store with one instance that completed and one that failed."""
    holdfast("run", "shop.py:checkout", "--input", '["hat", 5]', "--id", "good", "--json")
    holdfast("run", "shop.py:checkout", "--input", '["hat", -5]', "--id", "bad", "--json")
    return holdfast


def test_list_has_the_newest_first_and_filters(filled: Command) -> None:
    lines = filled("list").out.splitlines()
    assert lines[0].split() == ["id", "workflow", "state", "started", "(UTC)", "took"]
    assert [line.split()[:3] for line in lines[1:]] == [
        ["bad", "checkout", "FAILED"],
        ["good", "checkout", "COMPLETED"],
    ]
    assert "bad" not in filled("list", "--state", "completed").out
    assert filled("list", "--workflow", "che%").out == "No instances.\n"
    assert filled("list", "--workflow", "'; DROP TABLE instances; --").out == "No instances.\n"
    assert "there are more: --cursor " in filled("list", "--limit", "1").out
    fields = json.loads(filled("list", "--json", "--limit", "1").out)
    assert fields[0]["id"] == "bad"
    assert fields[0]["state"] == "FAILED"
    assert fields[0]["closed_at"].endswith("Z")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["list", "--state", "DONE"], "DONE"),
        (["list", "--limit", "0"], "from 1 to 10,000, not 0"),
        (["list", "--limit", "1000000000"], "from 1 to 10,000"),
        (["list", "--store", "x" * 300], "cannot be read"),
        (["show", "nobody"], "no instance has the id 'nobody'; holdfast list shows the instances of the store"),
        (["show", ""], "must not be empty"),
        (["show", "a\x1bb"], "must not contain"),
        (["show", "x" * 300], "at most 255 bytes"),
    ],
)
def test_wrong_questions_are_one_sentence(filled: Command, arguments: list[str], sentence: str) -> None:
    assert sentence in filled.refused(*arguments)


def test_K9_show_has_the_key_and_a_timeline_with_ledgers(filled: Command) -> None:
    out = filled("show", "good").out
    lines = out.splitlines()
    assert lines[0] == "good  checkout  COMPLETED"
    assert "key 646  2 completed, 1 released" in lines
    assert re.search(r"charge +1  COMPLETED  888000001000001 +\d+ ms", out)
    assert re.search(r"timer 1 +fired .*due \d{4}-", out)
    assert lines[-1] == 'result ["charged 5","packed hat"]'
    fields = json.loads(filled("show", "good", "--json").out)
    assert fields["collation_key"] == "646"
    assert fields["result"] == ["charged 5", "packed hat"]
    assert fields["steps"][0]["attempts"][0]["ledger"] == "888000001000001"
    assert "failure" not in fields


def test_a_failure_is_shown_with_its_causes_and_every_attempt(filled: Command) -> None:
    out = filled("show", "bad").out
    assert re.search(r"charge +1  FAILED  889000000000000 .*Declined", out)
    assert re.search(r"charge +2  FAILED  888000001000001 .*Declined", out)
    assert r"failed Declined: [red]no[/red] money \x1b[31m for -5" in out
    assert "because of KeyError: 'account'" in out
    assert "\x1b" not in out
    fields = json.loads(filled("show", "bad", "--json").out)
    assert fields["failure"]["cause"]["type"] == "builtins.KeyError"
    assert "result" not in fields
    assert r"\n" not in out, "the recorded traceback has a line for each frame"


def test_an_open_instance_says_what_it_waits_for_and_why_it_is_blocked(filled: Command) -> None:
    store = filled.folder / "holdfast.db"
    sql(store, "DELETE FROM history WHERE number = 1 AND turn > 0")
    sql(
        store,
        "UPDATE instances SET state = 'BLOCKED', blocked = 'the code [b]changed', closed_at_ms = NULL, "
        "outcome = NULL WHERE number = 1",
    )
    out = filled("show", "good").out
    assert "waits for activity charge" in out
    assert "blocked the code [b]changed" in out


def test_texts_of_the_store_are_printed_escaped(filled: Command) -> None:
    nasty = "[bold]x[/bold]\x1b[2J\u202eback"
    sql(filled.folder / "holdfast.db", "UPDATE instances SET id = ?, workflow = ? WHERE number = 1", nasty, nasty)
    for out in (filled("list").out, filled("verify").out):
        assert r"[bold]x[/bold]\x1b[2J\u202eback" in out
        assert "\x1b" not in out
        assert "\u202e" not in out


@pytest.mark.parametrize("command", [["list"], ["show", "a"], ["verify"], ["terminate", "a"], ["migrate"]])
def test_a_store_that_is_not_there_is_a_sentence_and_is_not_made(holdfast: Command, command: list[str]) -> None:
    assert "there is no store at holdfast.db" in holdfast.refused(*command)
    assert "there is no store at other/one.db" in holdfast.refused(*command, "--store", "other/one.db")
    assert sorted(path.name for path in holdfast.folder.iterdir()) == ["shop.py"]


@pytest.mark.parametrize("command", [["list"], ["show", "a"], ["verify"], ["terminate", "a"]])
def test_a_file_that_is_no_store_is_exit_code_3_and_stays_as_it_is(holdfast: Command, command: list[str]) -> None:
    text = holdfast.folder / "text.db"
    text.write_text("not a database, and long enough to look like one " * 50, encoding="utf-8")
    before = text.read_bytes()
    assert holdfast(*command, "--store", "text.db").code == 3
    assert text.read_bytes() == before
    sql(holdfast.folder / "other.db", "CREATE TABLE mine (x)")
    done = holdfast(*command, "--store", "other.db")
    assert done.code == 3
    assert "a database of something else" in done.err
    sql(holdfast.folder / "newer.db", "PRAGMA user_version = 9999; CREATE TABLE mine (x)")
    assert "newer release" in holdfast(*command, "--store", "newer.db").err
    assert holdfast(*command, "--store", ".").code == 3


EXISTING_STORE = [
    ["list"],
    ["show", "x"],
    ["history", "x"],
    ["watch", "x"],
    ["workers"],
    ["builds"],
    ["queues"],
    ["verify"],
    ["event", "x", "y"],
    ["query", "x", "y"],
    ["update", "x", "y"],
    ["update-result", "x", "y"],
    ["release", "x", "y"],
    ["attributes", "x"],
    ["attributes", "x", "a=1"],
    ["cancel", "x"],
    ["resume", "x"],
    ["pause", "x"],
    ["terminate", "x"],
    ["migrate"],
    ["backup", "x"],
    ["restored"],
    ["delete", "x"],
    ["prune", "--older-than", "1d"],
    ["start", "x"],
    ["requests"],
    ["replay", "shop.py"],
    ["patches", "shop.py"],
    ["blocked"],
]
"""The commands that need a store."""
WITHOUT_STORE = {"run", "worker", "explain", "bench"}
"""Commands that create a store, or do without one."""


def test_every_command_with_a_store_is_in_the_list_of_this_module() -> None:
    declared = {command.name for command in COMMANDS if any(param.name == "store" for param in command.params)}
    assert {words[0] for words in EXISTING_STORE} == declared - WITHOUT_STORE


@pytest.mark.parametrize("words", EXISTING_STORE)
def test_a_command_that_needs_a_store_creates_none(holdfast: Command, words: list[str]) -> None:
    before = sorted(holdfast.folder.iterdir())
    assert "there is no store at holdfast.db" in holdfast.refused(*words)
    assert sorted(holdfast.folder.iterdir()) == before


@pytest.mark.parametrize("words", [words for words in EXISTING_STORE if words != ["migrate"]])
def test_an_empty_file_is_not_a_store_and_stays_empty(holdfast: Command, words: list[str]) -> None:
    store = holdfast.folder / "holdfast.db"
    store.touch()
    assert "holdfast.db is empty, so it is not a Holdfast store" in holdfast.refused(*words)
    assert store.stat().st_size == 0


def test_a_database_without_tables_is_not_a_store(holdfast: Command) -> None:
    sql(holdfast.folder / "holdfast.db", "PRAGMA journal_mode = WAL")
    assert "holdfast.db has no tables, so it is not a Holdfast store" in holdfast.refused("verify")
    assert "holds nothing yet" in holdfast("list").err


def test_the_store_comes_from_the_option_the_variable_the_settings_or_the_default(
    filled: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = filled.folder
    assert "good" in filled("list").out
    (folder / "holdfast.toml").write_text('[holdfast]\nstore = "settings.db"\n', encoding="utf-8")
    assert "no store at settings.db" in filled.refused("list")
    monkeypatch.setenv("HOLDFAST_STORE", "variable.db")
    assert "no store at variable.db" in filled.refused("list")
    assert "no store at option.db" in filled.refused("list", "--store", "option.db")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ("[holdfast\n", "holdfast.toml cannot be read"),
        ("[holdfast]\nstore = 3\n", "is expected, not 3"),
        ("holdfast = 3\n", "is expected, not 3"),
        ('[holdfast]\nstore = " "\n', "is not the path of a store"),
    ],
)
def test_wrong_settings_are_a_sentence(filled: Command, settings: str, sentence: str) -> None:
    (filled.folder / "holdfast.toml").write_text(settings, encoding="utf-8")
    assert sentence in filled.refused("list")


def test_settings_without_a_store_leave_the_default(filled: Command) -> None:
    (filled.folder / "holdfast.toml").write_text("[other]\nx = 1\n", encoding="utf-8")
    assert "good" in filled("list").out


SPEAKING = """
import holdfast as hf

@hf.workflow
async def speaks(what: str) -> None:
    hf.set_status(what if what else {"percent": 50})
"""


WAITING = """
import asyncio
import holdfast as hf

@hf.workflow
async def waits() -> int:
    hf.raise_event(hf.info().id, "ping", 1)
    first = await hf.event("ping", int)
    try:
        async with asyncio.timeout(0.01):
            await hf.event("never")
    except TimeoutError:
        return first
    return 0
"""


def test_K9_waits_for_events_are_told_apart_from_timers(filled: Command) -> None:
    Path("waiting.py").write_text(WAITING, encoding="utf-8")
    filled("run", "waiting.py:waits", "--id", "it", "--json")
    out = filled("show", "it").out
    assert re.search(r"event ping +received", out)
    assert re.search(r"event never +cancelled", out)
    assert re.search(r"timer \d +fired", out)
    steps = json.loads(filled("show", "it", "--json").out)["steps"]
    assert [(step["kind"], step.get("name"), step["state"]) for step in steps if step["kind"] == "event"] == [
        ("event", "ping", "received"),
        ("event", "never", "cancelled"),
    ]


def test_G11_list_and_show_print_what_a_workflow_says_of_itself(filled: Command) -> None:
    Path("speaking.py").write_text(SPEAKING, encoding="utf-8")
    filled("run", "speaking.py:speaks", "--input", '["half way [red]\\u001b"]', "--id", "text", "--json")
    filled("run", "speaking.py:speaks", "--input", '[""]', "--id", "value", "--json")
    lines = filled("list").out.splitlines()
    assert lines[0].split()[-1] == "status"
    assert '{"percent":50}' in lines[1]
    assert "half way [red]\\x1b" in lines[2]
    assert 'status {"percent":50}' in filled("show", "value").out
    assert "status half way [red]\\x1b" in filled("show", "text").out
    assert "status" not in filled("show", "good").out
    assert json.loads(filled("show", "value", "--json").out)["custom_status"] == {"percent": 50}
    assert json.loads(filled("list", "--json").out)[0]["custom_status"] == {"percent": 50}


def test_the_former_name_of_the_state_option_works_for_one_release(filled: Command) -> None:
    listed = filled("list", "--status", "completed", "--json")
    assert [fields["id"] for fields in json.loads(listed.out)] == ["good"]
    assert "--status is called --state" in listed.err


def test_migrate_creates_the_tables_in_an_empty_file(holdfast: Command) -> None:
    (holdfast.folder / "holdfast.db").touch()
    assert "holdfast.db is up to date" in holdfast("migrate").out
    assert holdfast("verify").code == 0
