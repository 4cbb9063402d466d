"""What the commands print fits a terminal of 72 columns, and stays in whole lines where there is no terminal."""

import pytest
from rich.console import Console
from rich.text import Text
from tests.unit.cli.commands import Command

from holdfast.cli.activity_commands import ACTIVITY_COMMANDS
from holdfast.cli.commands import COMMANDS, FLOW_COMMANDS
from holdfast.cli.console import print_aligned, print_line

COLUMNS = 72
SHOP = """
import asyncio
import holdfast as hf

class DeclinedByTheIssuingBank(Exception): ...

@hf.activity(retry=hf.Retry(attempts=2, initial=0.01))
async def charge_the_card_of_the_customer(card: str, cents: int) -> dict[str, int]:
    if cents < 0:
        raise DeclinedByTheIssuingBank(f"the card {card} was declined: an amount of {cents} is not allowed here")
    return {"cents": cents}

@hf.workflow
async def checkout_with_a_long_name(item: str, cents: int = 300) -> None:
    hf.set_status(f"charging {cents} cents for {item}, which takes a while with some of the banks")
    await charge_the_card_of_the_customer("4242-4242-4242-4242", cents)
    await asyncio.sleep(0.01)
"""
FLOW = """
flow: order
activities:
  begin: {trigger: event}
  charge: {run: charge_the_card_of_the_customer, after: begin, with: {card: a, cents: b, colour: c, of_the: d}}
  unreachable_because_nothing_leads_to_it: {run: charge_the_card_of_the_customer}
"""
LONG_ID = "3f2b8c1e-9c1e-4a58-9d6a-2f1f0b7a5c11"


@pytest.fixture
def wide(holdfast: Command, monkeypatch: pytest.MonkeyPatch) -> Command:
    """A store with long names, long values and long failures."""
    (holdfast.folder / "wide.py").write_text(SHOP, encoding="utf-8")
    (holdfast.folder / "order.yaml").write_text(FLOW, encoding="utf-8")
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    holdfast("run", "wide.py:checkout_with_a_long_name", "-i", '["a hat", 5]', "--id", LONG_ID, "--json")
    holdfast("run", "wide.py:checkout_with_a_long_name", "-i", '["a hat", -5]', "--id", "bad", "--json")
    return holdfast


LINES = [
    ["list"],
    ["show", LONG_ID],
    ["show", "bad"],
    ["history", "bad"],
    ["workers", "--all"],
    ["builds"],
    ["queues"],
    ["verify"],
    ["watch", LONG_ID],
    ["watch", "bad"],
    ["run", "wide.py:checkout_with_a_long_name", "--id", "bad"],
    ["run", "wide.py:checkout_with_a_long_name", "-i", '["a hat", -5]', "--id", "worse"],
    ["run", "wide.py:checkout_with_a_long_name", "-i", '{"item": "a hat", "cents": 1, "colour_of_the_hat": 2}'],
    ["flow", "check", "order.yaml"],
    ["explain", "888000002000002"],
    ["bench", "--store", "a_folder_with_a_long_name_that_is_not_there/shop.db"],
    ["terminate", "bad", "--reason", "nobody needs it any more, and it has waited for long enough"],
    ["event", "bad", "approval_of_the_customer_who_has_waited_for_long_enough"],
    ["query", "bad", "total_of_everything_that_was_ordered_by_the_customer", "--timeout", "0.01"],
    ["update", "bad", "total_of_everything_that_was_ordered_by_the_customer"],
    ["update-result", "bad", "the_id_of_an_update_that_nobody_has_sent_to_this_instance"],
    ["release", "bad", "the_review_of_everything_that_was_ordered_by_the_customer"],
    ["attributes", "good", 'note="the customer does not need it any more, and so on"'],
    ["cancel", "bad", "--reason", "the customer does not need it any more"],
    ["resume", "bad"],
    ["pause", "open", "--reason", "a reason"],
    ["resume", "open"],
    ["worker", "wide.py:a_workflow_that_cannot_be_named_here_because_all_are_taken"],
    ["migrate"],
    ["backup", "a_file_with_a_long_name_that_says_when_and_why_the_backup_was_taken.db"],
    ["restored"],
    ["delete", "bad"],
    ["prune", "--older-than", "0s", "--dry-run"],
    ["archive", "a_file_with_a_long_name_that_says_when_and_why_the_instances_were_deleted"],
    ["flow", "run", "order.yaml", "--app", "wide.py"],
    ["flow", "draw", "order.yaml", "--mermaid"],
    ["start", "a_workflow_with_a_long_name_that_no_live_worker_has", "--request-id", LONG_ID],
    ["requests"],
    ["replay", "wide.py"],
    ["patches", "wide.py"],
    ["blocked"],
    ["activity", "list", "--queue", "a_queue_with_a_long_name_that_no_executor_serves_for_now"],
    ["activity", "claim", "--queue", "a_queue_with_a_long_name_that_no_executor_serves_for_now"],
    ["activity", "run", "--queue", "a_queue_with_a_long_name_that_no_executor_serves", "--", "true"],
    ["activity", "heartbeat", "--exec-id", LONG_ID],
    ["activity", "respond", "--exec-id", LONG_ID, "1"],
    ["activity", "complete", "1"],
    ["activity", "fail", "--exec-id", LONG_ID, "the program ended with an error that has a long message"],
    ["activity", "release"],
    ["activity", "cancel", "--exec-id", LONG_ID],
    ["activity", "stopped"],
    ["activity", "note", "no JSON, and long enough to be folded at the width of the terminal"],
]
"""Every command, with arguments that make its lines long."""


def test_every_command_is_in_the_list_of_this_module() -> None:
    names = {words[0] if words[0] not in {"flow", "activity"} else " ".join(words[:2]) for words in LINES}
    declared = {command.name for command in COMMANDS} | {f"flow {command.name}" for command in FLOW_COMMANDS}
    declared |= {f"activity {command.name}" for command in ACTIVITY_COMMANDS}
    assert names == declared


@pytest.mark.parametrize("words", LINES, ids=" ".join)
def test_every_line_fits_the_terminal(wide: Command, words: list[str]) -> None:
    done = wide(*words)
    assert done.out + done.err
    assert [line for line in (done.out + done.err).splitlines() if len(line) > COLUMNS] == []


HELP = [
    [],
    ["flow"],
    *([command.name] for command in COMMANDS if command.name),
    *(["flow", command.name] for command in FLOW_COMMANDS if command.name),
    ["activity"],
    *(["activity", command.name] for command in ACTIVITY_COMMANDS if command.name),
]


@pytest.mark.parametrize("words", HELP, ids=" ".join)
def test_the_help_of_every_command_fits_the_terminal(
    holdfast: Command, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    text = holdfast(*words, "--help").out
    assert text.startswith("Usage: holdfast")
    assert [line for line in text.splitlines() if len(line) > COLUMNS] == []


def test_without_a_terminal_lines_stay_whole(wide: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS")
    lines = wide("history", "bad").out.splitlines()
    assert len(lines) == 5, "a header, and a line for each entry"
    assert max(map(len, lines)) > COLUMNS


def test_values_that_are_asked_for_whole_are_not_folded(wide: Command) -> None:
    assert len(wide("history", "bad", "--whole").out.splitlines()) == 5
    assert "an amount of -5 is not allowed here" in wide("show", "bad", "--whole").out


def printed(capfd: pytest.CaptureFixture[str], *rows: list[str], columns: int) -> list[str]:
    capfd.readouterr()
    print_aligned(Console(width=columns), [[Text(cell) for cell in row] for row in rows], right=(1,))
    return capfd.readouterr().out.splitlines()


def test_columns_without_room_are_named_under_their_row(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "1")
    rows = (["id", "n", "queue", "host", ""], ["a", "100", "default", "", "x y"], ["b", "2", "mail", "vm", ""])
    assert printed(capfd, *rows, columns=40) == [
        "id    n  queue    host",
        "a   100  default        x y",
        "b     2  mail     vm",
    ]
    assert printed(capfd, *rows, columns=24) == [
        "id    n  queue    host",
        "a   100  default",
        "    x y",
        "b     2  mail     vm",
    ]
    assert printed(capfd, *rows, columns=16) == [
        "id    n  queue",
        "a   100  default",
        "    x y",
        "b     2  mail",
        "    host vm",
    ]
    assert printed(capfd, *rows, columns=15)[:2] == ["id    n", "a   100"]


def test_a_line_is_folded_between_words(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "1")
    print_line(Console(width=16), Text("one two three four\nfive"))
    assert capfd.readouterr().out.splitlines() == ["one two", "    three four", "five"]
