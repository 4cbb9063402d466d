"""Rows of clients that are wrong in every way: each is refused with a sentence, and none delays the others (C2)."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.by_rows import ByRows
from tests.scenarios.kinds import are_files
from tests.scenarios.support import check_tables, engine_of, path_of, rows, together, until

import holdfast as hf
from holdfast.audit.auditor import audit
from holdfast.cli.activity_commands import ACTIVITY_COMMANDS
from holdfast.core.activity_events import DEFAULT_ERROR_TYPE
from holdfast.storage.relational.apply import activity_events, requests

HUGE = 2**63 - 1
LEAST = -(2**63)
REPORT = "INSERT INTO activity_events (event_id, activity_exec_id, transition"


@hf.workflow
async def greets(name: str, times: int = 1) -> str:
    return " ".join([name] * times)


@hf.activity(external=True, heartbeat=60)
async def train(text: str) -> dict[str, int]: ...  # type: ignore[empty-body]


@hf.activity(external=True, heartbeat=60)
def quotes() -> AsyncIterator[int]: ...  # type: ignore[empty-body]


@hf.activity(external=True, heartbeat=60, retry=hf.Retry(non_retryable=("ExternalFailure",)))
async def copy() -> str: ...  # type: ignore[empty-body]


@hf.workflow
async def copies() -> str:
    return await copy()


@hf.workflow
async def trains() -> dict[str, int]:
    return await train("a")


@hf.workflow
async def sums() -> list[int]:
    return [value async for value in quotes()]


ALL = (greets, trains, sums, copies, train, quotes, copy)

BAD_INPUTS = {
    "empty": "",
    "blank": "  ",
    "malformed": '["a"',
    "two values": '["a"] []',
    "a number": "1",
    "a string": '"a"',
    "null": "null",
    "NaN": "[NaN]",
    "infinity": "[1e400]",
    "deep": "[" * 100_000 + "]" * 100_000,
    "deep objects": '{"a":' * 5_000 + "1" + "}" * 5_000,
    "duplicate keys": '{"name": "a", "name": "b"}',
    "too many": '["a", 1, 2]',
    "too few": "[]",
    "unknown name": '{"nome": "a"}',
    "wrong type": '["a", "b"]',
    "fraction": '["a", 1.5]',
    "huge integer": '["a", ' + "9" * 5_000 + "]",
    "NUL": '["\\u0000"]',
    "lone surrogate": '["\\ud800"]',
    "control character": '["a\x01"]',
    "BOM": '\ufeff["a"]',
}
BAD_REQUESTS: dict[str, dict[str, Any]] = {
    "unknown kind": {"kind": "stop"},
    "empty kind": {"kind": ""},
    "long kind": {"kind": "x" * 100_000},
    "no workflow": {"workflow": None},
    "long id": {"instance_id": "i" * 100_000},
    "wide id": {"instance_id": "ä" * 200},
    "unknown policy": {"policy": "never"},
    "long policy": {"policy": "p" * 100_000},
    "negative deadline": {"deadline_after_ms": -1},
    "least deadline": {"deadline_after_ms": LEAST},
    "huge deadline": {"deadline_after_ms": HUGE},
    "least start": {"start_at_ms": LEAST},
    "huge start": {"start_at_ms": HUGE},
    "event without name": {"kind": "event", "instance_id": "x"},
    "long event": {"kind": "event", "instance_id": "x", "event_name": "e" * 100_000},
    "event to nobody": {"kind": "event", "instance_id": "x", "event_name": "e"},
    "long target": {"kind": "cancel", "instance_id": "x" * 100_000},
}


def test_C2_every_bad_request_is_refused_and_the_others_are_served(tmp_path: Path) -> None:
    async def scenario() -> None:
        by_rows = ByRows(path := tmp_path / "it.db")
        async with engine_of(path, *ALL) as engine:
            bad = {name: by_rows.request("greets", input=given) for name, given in BAD_INPUTS.items()}
            for name, columns in BAD_REQUESTS.items():
                bad[name] = by_rows.request(**({"workflow": "greets", "input": '["a"]'} | columns))
            if are_files():
                bad |= _bad_bytes(path)
            good = by_rows.request("greets", input='["a"]', instance_id="good")
            async with asyncio.timeout(15):
                await until(lambda: by_rows.answer_to(good)[0] == "ACCEPTED")
            assert await engine.get("good").result(timeout=20) == "a"
            for name, request_id in bad.items():
                state, refusal = by_rows.answer_to(request_id)
                assert state == "REFUSED", (name, refusal)
                assert refusal, name
                assert len(refusal) <= 2_000, name
            assert rows(path, "SELECT count(*) FROM requests WHERE state = 'NEW'") == [(0,)]
            check_tables(path)
            assert [problem.text for problem in audit(path)] == []

    together(scenario(), 60)


def _bad_bytes(path: Path) -> dict[str, str]:
    """Texts that are not UTF-8, or have a NUL, which only SQLite stores."""
    found: dict[str, str] = {}
    for column in ("kind", "instance_id", "event_name", "input", "policy"):
        for name, value in (("bad bytes", "x'ff'"), ("a NUL", "x'006100'")):
            given = f"{name} in {column}"
            statement = f"INSERT INTO requests (request_id, workflow, {column}) VALUES (?, ?, CAST({value} AS TEXT))"  # noqa: S608
            rows(path, statement, given, "greets")
            found[given] = given
    return found


BAD_REPORTS: dict[str, dict[str, Any]] = {
    "unknown transition": {"transition": "STARTED"},
    "small letters": {"transition": "running"},
    "empty transition": {"transition": ""},
    "long transition": {"transition": "R" * 100_000},
    "malformed": {"payload": "{"},
    "deep": {"payload": "[" * 100_000},
    "wrong type": {"payload": '{"a": "b"}'},
    "not an object": {"payload": "[]"},
    "no payload": {},
    "NUL": {"payload": '{"\\u0000": 1}'},
    "huge integer": {"payload": '{"a": ' + "9" * 5_000 + "}"},
    "beyond 64 bits": {"payload": '{"a": 1e400}'},
    "sequence 0": {"payload": "{}", "sequence": 0},
    "negative sequence": {"payload": "{}", "sequence": LEAST},
    "long claim": {"payload": "{}", "claim": "c" * 100_000},
    "empty claim": {"payload": "{}", "claim": ""},
    "response to a result": {"transition": "RESPONSE", "payload": "1"},
    "bad heartbeat": {"transition": "HEARTBEAT", "payload": "{"},
    "bad note": {"transition": "NOTE", "payload": "nope"},
}


def test_C2_every_bad_report_is_refused_and_the_attempt_goes_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        by_rows = ByRows(path := tmp_path / "it.db")
        async with engine_of(path, *ALL) as engine:
            handle = await engine.start(trains, id="it")
            exec_id = await by_rows.offer("it")
            assert (await by_rows.report(exec_id, "RUNNING"))[0] == "APPLIED"
            bad = {
                name: by_rows.insert(exec_id, **({"transition": "COMPLETED"} | columns))
                for name, columns in BAD_REPORTS.items()
            }
            for name, unknown in {"unknown id": "0" * 32, "long exec id": "x" * 100_000, "no id": ""}.items():
                bad[name] = by_rows.insert(unknown, "RUNNING")
            if are_files():
                for column in ("activity_exec_id", "transition", "claim", "payload"):
                    bad[f"bytes in {column}"] = _bad_report(path, exec_id, column)
            far = by_rows.insert(exec_id, "HEARTBEAT", sequence=HUGE)
            odd = [by_rows.insert(exec_id, "HEARTBEAT", source="s" * 100_000, sent_at="yesterday")]
            odd.append(by_rows.insert(exec_id, "HEARTBEAT", payload='{"any": [1, null]}', error="ignored"))
            for event_id in odd:
                assert await by_rows.answered(event_id) == ("APPLIED", None)
            for name, event_id in bad.items():
                state, refusal = await by_rows.answered(event_id)
                assert state == "REFUSED", (name, state, refusal)
                assert refusal, name
                assert len(refusal) <= 2_000, name
            assert by_rows.attempts("it") == [("RUNNING", 889)]
            assert (await by_rows.answered(far))[0] == "WAITING"
            assert (await by_rows.report(exec_id, "COMPLETED", payload='{"a": 1}'))[0] == "APPLIED"
            assert await handle.result(timeout=20) == {"a": 1}
            await until(lambda: by_rows.answer(far)[0] == "REFUSED")
            check_tables(path)
            assert [problem.text for problem in audit(path)] == []

    together(scenario(), 60)


def _bad_report(path: Path, exec_id: str, column: str) -> str:
    values = {"event_id": f"'{column}'", "activity_exec_id": f"'{exec_id}'", "transition": "'COMPLETED'"}
    values[column] = "CAST(x'ff' AS TEXT)"
    names, given = ", ".join(values), ", ".join(values.values())
    rows(path, f"INSERT INTO activity_events ({names}) VALUES ({given})")  # noqa: S608
    return column


@pytest.mark.parametrize(
    "error",
    [
        "x" * 100_000,
        json.dumps({"type": "T" * 50_000, "message": "m" * 50_000}),
        '{"message": "a\\u0000b"}',
        '{"message": "\\ud800"}',
        '{"message": 5}',
        "{" * 100_000,
        "\x01\x7f",
        "",
    ],
    ids=["long", "long object", "NUL", "surrogate", "wrong type", "deep", "control", "empty"],
)
def test_C2_the_error_of_a_failure_is_never_refused_for_its_form(tmp_path: Path, error: str) -> None:
    async def scenario() -> None:
        by_rows = ByRows(path := tmp_path / "it.db")
        async with engine_of(path, *ALL) as engine:
            await engine.start(trains, id="it")
            exec_id = await by_rows.offer("it")
            assert (await by_rows.report(exec_id, "RUNNING"))[0] == "APPLIED"
            assert await by_rows.report(exec_id, "FAILED", error=error) == ("APPLIED", None)
            await by_rows.reached("it", "FAILED", "READY")
            assert (await engine.get("it").describe()).state == "RUNNING"
            check_tables(path)

    together(scenario())


def test_C4_a_retry_policy_knows_a_failure_that_was_reported_without_a_type(tmp_path: Path) -> None:
    async def scenario() -> None:
        by_rows = ByRows(path := tmp_path / "it.db")
        async with engine_of(path, *ALL) as engine:
            handle = await engine.start(copies, id="it")
            exec_id = await by_rows.offer("it")
            assert (await by_rows.report(exec_id, "RUNNING"))[0] == "APPLIED"
            assert await by_rows.report(exec_id, "FAILED", error="no space on /data") == ("APPLIED", None)
            with pytest.raises(hf.WorkflowFailed, match="no space on /data"):
                await handle.result(timeout=20)
            assert len((await handle.describe()).attempts) == 1

    together(scenario())
    [command] = [each for each in ACTIVITY_COMMANDS if each.name == "fail"]
    assert DEFAULT_ERROR_TYPE in [option.default for option in command.params], "by the command, too"


def test_C2_engine_columns_are_not_for_clients(tmp_path: Path) -> None:
    if not are_files():
        pytest.skip("on PostgreSQL roles do this")

    async def scenario() -> None:
        async with engine_of(tmp_path / "it.db", *ALL) as engine:
            for statement in (
                "INSERT INTO requests (request_id, state) VALUES ('r', 'ACCEPTED')",
                "INSERT INTO requests (request_id, handled_at_ms) VALUES ('r', 1)",
                "INSERT INTO requests (request_id, instance_number) VALUES ('r', 1)",
                f"{REPORT}, state) VALUES ('e', 'x', 'NOTE', 'APPLIED')",
                f"{REPORT}, cancel_requested) VALUES ('e', 'x', 'NOTE', 1)",
            ):
                with pytest.raises(Exception, match="written by the engine"):
                    rows(path_of(engine), statement)

    together(scenario())


def test_C2_a_row_that_the_database_refuses_is_refused_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a value that the engine accepts and the database does not: the others of its attempt are applied."""
    fold = activity_events._ReportFold
    apply, start = fold._apply, vars(requests)["apply_start"]

    def poisoned(self: Any, report: Any) -> Any:
        if report.value == b'"poison"':
            raise ValueError("the database does not take this value")
        return apply(self, report)

    def poisoned_start(transaction: Any, action: Any) -> Any:
        if action.id == "poison":
            raise ValueError("the database does not take this id")
        return start(transaction, action)

    monkeypatch.setattr(fold, "_apply", poisoned)
    monkeypatch.setattr(requests, "apply_start", poisoned_start)

    async def scenario() -> None:
        by_rows = ByRows(path := tmp_path / "it.db")
        async with engine_of(path, *ALL) as engine:
            handle = await engine.start(trains, id="it")
            exec_id = await by_rows.offer("it")
            ids = [
                by_rows.insert(exec_id, transition, payload=payload)
                for transition, payload in (
                    ("RUNNING", None),
                    ("HEARTBEAT", "1"),
                    ("HEARTBEAT", '"poison"'),
                    ("HEARTBEAT", "2"),
                    ("COMPLETED", "{}"),
                )
            ]
            answers = [await by_rows.answered(event_id) for event_id in ids]
            assert [state for state, _ in answers] == ["APPLIED", "APPLIED", "REFUSED", "APPLIED", "APPLIED"]
            assert "the database did not accept it" in (answers[2][1] or "")
            assert await handle.result(timeout=20) == {}
            requests_made = [
                by_rows.request("greets", input='["a"]', instance_id=name) for name in ("a", "poison", "b")
            ]
            await until(lambda: all(by_rows.answer_to(one)[0] != "NEW" for one in requests_made))
            assert [by_rows.answer_to(one)[0] for one in requests_made] == ["ACCEPTED", "REFUSED", "ACCEPTED"]
            check_tables(path)

    together(scenario(), 60)
