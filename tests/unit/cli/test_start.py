"""``holdfast start``, ``requests`` and ``activity`` without a worker: rows, refusals and completion."""

import asyncio
import json
from pathlib import Path

import pytest
from tests.unit.cli.commands import Command, sql

import holdfast as hf
from holdfast.cli.activity_commands import ACTIVITY_COMMANDS
from holdfast.cli.candidates import read_candidates

EXEC = ("--exec-id", "0" * 32)


def test_C2_a_start_inserts_one_row_with_all_its_options(filled: Command) -> None:
    words = ["start", "checkout", "-i", '{"item": "hat"}', "--id", "x", "--policy", "reuse", "--source", "cron"]
    words += ["--start-at", "2030-01-31T07:00:00+01:00", "--deadline", "1.5", "--request-id", "r"]
    done = filled(*words)
    assert (done.code, done.out) == (4, "checkout x NEW\n")
    assert "no live worker has the workflow 'checkout'" in done.err
    (row,) = sql(
        filled.folder / "holdfast.db",
        "SELECT request_id, kind, workflow, instance_id, input, policy, start_at_ms, deadline_after_ms, manual, "
        "source, state FROM requests",
    )
    assert row == (
        *("r", "start", "checkout", "x", '{"item": "hat"}', "reuse", 1_896_069_600_000, 1_500, 0, "cron", "NEW"),
    )


def test_C2_another_request_under_the_same_id_is_refused(filled: Command) -> None:
    for _ in range(2):
        assert filled("start", "checkout", "-i", '["hat"]', "--request-id", "r").code == 4
    other = filled("start", "checkout", "-i", '["cap"]', "--request-id", "r")
    assert other.code == 2
    assert "the request id 'r' is taken by a request with another input" in other.err
    later = filled("start", "checkout", "-i", '["hat"]', "--request-id", "r", "--deadline", "9")
    assert later.code == 2
    assert "with another deadline_after_ms" in later.err


def test_C2_an_input_that_is_no_list_is_the_only_argument(filled: Command) -> None:
    for given, stored in (('"hat"', '["hat"]'), ("[1]", "[1]"), (' {"a": 1}', ' {"a": 1}'), ("null", "[null]")):
        done = filled("start", "checkout", "-i", given, "--json")
        assert json.loads(done.out)["input"] == stored
    assert json.loads(filled("start", "checkout", "--json").out)["input"] == "[]"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["start", ""], "must not be empty"),
        (["start", "x", "-i", "{"], "not valid JSON"),
        (["start", "x", "-i", '{"a": 1, "a": 2}'], "a"),
        (["start", "x", "--id", "a\x1bb"], "must not contain"),
        (["start", "x", "--policy", "never"], "never"),
        (["start", "x", "--start-at", "tomorrow"], "'tomorrow' is not a time such as"),
        (["start", "x", "--deadline", "-1"], "--deadline"),
        (["start", "x", "--deadline", "nan"], "--deadline"),
        (["start", "x", "--request-id", "y" * 300], "at most 255 bytes"),
        (["start", "x", "--source", "a\nb"], "must not contain"),
        (["requests", "--state", "DONE"], "DONE"),
        (["requests", "--limit", "0"], "from 1 to 10,000, not 0"),
        (["activity", "list", "--limit", "0"], "--limit"),
        (["activity", "list", "--queue", ""], "must not be empty"),
        (["activity", "claim", "--as", "DONE"], "--as is RUNNING, PREPARING, QUEUED, not 'DONE'"),
        (["activity", "claim", "--as", "FAILED"], "--as is RUNNING, PREPARING, QUEUED"),
        (["activity", "claim", *EXEC], "no activity has the exec id"),
        (["activity", "run", "--queue", "gpu", "--", "no-such-program"], "there is no program 'no-such-program'"),
        (["activity", "run", "--", "true"], "name the activities to run with --queue or --name"),
        (["activity", "run", "--queue", "gpu", "--text", "--responses", "--", "true"], "exclude each other"),
        (["activity", "run", "--queue", "gpu", "--grace", "-1", "--", "true"], "--grace"),
        (["activity", "run", "--queue", "gpu", "--payload-limit", "1", "--", "true"], "--payload-limit"),
        (["activity", "heartbeat"], "no activity is named: give --exec-id"),
        (["activity", "heartbeat", "--exec-id", ""], "must not be empty"),
        (["activity", "heartbeat", *EXEC, "--details", "{"], "not valid JSON"),
        (["activity", "heartbeat", *EXEC, "--sequence", "0"], "--sequence"),
        (["activity", "heartbeat", *EXEC, "--claim", "a\tb"], "must not contain"),
        (["activity", "respond", *EXEC, "yes"], "a string has quotes"),
        (["activity", "complete", *EXEC, "1 2"], "not valid JSON"),
        (["activity", "fail", *EXEC, "x", "--type", ""], "must not be empty"),
        (["activity", "release"], "no activity is named"),
        (["activity", "cancel"], "no activity is named"),
        (["activity", "stopped"], "no activity is named"),
        (["activity", "note", *EXEC, "NaN"], "NaN"),
    ],
)
def test_wrong_input_is_one_sentence_and_stores_nothing(filled: Command, words: list[str], sentence: str) -> None:
    assert sentence in filled.refused(*words)
    store = filled.folder / "holdfast.db"
    assert sql(store, "SELECT (SELECT count(*) FROM requests) + (SELECT count(*) FROM activity_events)") == [(0,)]


@pytest.mark.parametrize("command", [command.name for command in ACTIVITY_COMMANDS])
def test_a_command_about_activities_creates_no_store(holdfast: Command, command: str) -> None:
    values = {"run": ["--queue", "gpu", "--", "true"], "respond": ["1"], "fail": ["no"], "note": ["1"]}
    names = [] if command in {"list", "claim", "run"} else [*EXEC]
    assert "there is no store at holdfast.db" in holdfast.refused("activity", command, *names, *values.get(command, []))
    assert not (holdfast.folder / "holdfast.db").exists()


def test_C2_a_report_that_no_worker_handles_is_stored(filled: Command) -> None:
    done = filled("activity", "fail", *EXEC, "no money", "--type", "Declined", "--final", "--event-id", "e")
    assert (done.code, done.out) == (4, "FAILED NEW\n")
    (row,) = sql(filled.folder / "holdfast.db", "SELECT event_id, transition, error, claim FROM activity_events")
    assert row[:2] == ("e", "FAILED")
    assert json.loads(str(row[2])) == {"type": "Declined", "message": "no money", "retryable": False}


def test_C2_texts_of_clients_that_are_no_utf_8_are_listed(filled: Command) -> None:
    store = filled.folder / "holdfast.db"
    sql(
        store,
        "INSERT INTO requests (request_id, workflow, input, source) VALUES "
        "('r' || CAST(x'ff' AS TEXT), CAST(x'fe1b5b' AS TEXT), CAST(zeroblob(1000000) AS TEXT), CAST(x'80' AS TEXT))",
    )
    assert "\ufffd\\x1b[" in filled("requests").out
    (listed,) = json.loads(filled("requests", "--json").out)
    assert listed["request_id"] == "r\ufffd"
    assert len(listed["input"]) < 10_000
    assert "1 request for \ufffd\\x1b[" in filled("queues").out


def test_C3_a_traced_start_is_listed_as_trace_and_starts_nothing_more(holdfast: Command) -> None:
    async def start(path: Path) -> None:
        async with hf.connect(path) as client:
            first = await client.start("checkout", "hat", id="x", trace=True)
            assert first.is_new
            again = await client.start("checkout", "hat", id="x", trace=True)
            assert not again.is_new

    asyncio.run(start(holdfast.folder / "holdfast.db"))
    listed = json.loads(holdfast("requests", "--json").out)
    assert [(row["state"], row["manual"], row["instance_id"], row["input"]) for row in listed] == [
        ("TRACE", True, "x", '["hat"]')
    ] * 2
    assert len(json.loads(holdfast("list", "--json").out)) == 1


def test_C3_an_engine_traces_a_start_with_its_first_turn(tmp_path: Path) -> None:
    @hf.workflow
    async def double(number: int) -> int:
        return 2 * number

    async def run() -> None:
        async with hf.Engine(tmp_path / "a.db", workflows=[double]) as engine:
            handle = await engine.start(double, 4, id="x", trace=True)
            assert await handle.result() == 8
            assert (handle.number, "TRACE", 1) in sql(
                tmp_path / "a.db", "SELECT instance_number, state, manual FROM requests"
            )

    asyncio.run(run())


@pytest.mark.usefixtures("filled")
def test_values_of_the_store_are_completed() -> None:
    assert read_candidates("instances", None, "") == ["open", "good"]
    assert read_candidates("instances", "holdfast.db", "g") == ["good"]
    assert read_candidates("workflows", None, "ch") == ["checkout"]
    assert read_candidates("queues", None, "") == []
    assert read_candidates("activities", None, "") == read_candidates("exec ids", None, "") == []
    assert read_candidates("instances", "no.db", "") == []
