"""``holdfast explain`` as a person meets it: what it prints, in which words it refuses, and its JSON."""

import json
import subprocess
import sys
from io import StringIO

import pytest
from click.testing import CliRunner
from rich.console import Console

from holdfast._version import __version__
from holdfast.cli.commands import root
from holdfast.cli.explain import explanation_of
from holdfast.cli.main import main

FOX = "ate,brown,fox,jumped,quick,slept"


def explain(*arguments: str) -> str:
    result = CliRunner().invoke(root, ["explain", *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def refusal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    monkeypatch.setattr(sys, "argv", ["holdfast", "explain", *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    printed = capsys.readouterr()
    assert not printed.out
    assert printed.err.startswith("holdfast: ")
    assert "Traceback" not in printed.err
    return printed.err


def test_a_ledger_is_explained_digit_by_digit_below_its_digits() -> None:
    assert explain("888000002000002").splitlines() == [
        "888000002000002  ledger of one attempt of an activity",
        "8                leg 1 entered once",
        " 8               leg 1 concluded: an executor has it",
        "  8              leg 2 closed by a final response",
        "   000002        2 responses entered leg 2",
        "         000002  2 responses left it, with their effects recorded",
        "An executor had it (leg 1 was entered once); 2 responses came, all applied; a final one closed it.",
    ]


def test_a_key_is_explained_by_the_names_of_its_activities() -> None:
    assert explain("366663000000000", "--activities", FOX).splitlines() == [
        "366663000000000  collation key of 6 activities",
        "3  ate     skipped",
        "6  brown   completed",
        "6  fox     completed",
        "6  jumped  completed",
        "6  quick   completed",
        "3  slept   skipped",
        "0  not used (9 times, to fill 15 digits)",
        "Complete: nothing is pending, started or paused, and nothing errored.",
    ]


@pytest.mark.parametrize(
    ("digits", "verdict"),
    [
        ("968969000000000", "Not complete: 3 pending, 1 started."),
        ("566366000000000", "Not complete: 1 paused."),
        ("766366000000000", "Complete, and an activity errored: an error unless an error edge caught it."),
    ],
)
def test_the_last_line_says_whether_the_flow_is_complete(digits: str, verdict: str) -> None:
    assert explain(digits, "-a", FOX).splitlines()[-1] == verdict


def test_activities_may_be_given_in_any_order_and_with_spaces() -> None:
    assert explain("366663000000000", "-a", "quick, slept, ate, fox, brown, jumped") == explain(
        "366663000000000", "-a", FOX
    )


def test_a_composite_shows_its_children_below_the_activity_that_awaited_them() -> None:
    shown = explain("36636146636626").splitlines()
    assert shown[0] == "36636146636626  composite of collation keys"
    assert shown[6] == "    1 2  the child flow that it awaited (complete)"
    assert shown[7] == "    4    activity 1  released"
    assert shown[-1].startswith("Complete")


def test_json_has_every_field() -> None:
    ledger = json.loads(explain("889000003000001", "--json"))
    assert ledger == {
        "kind": "ledger",
        "digits": "889000003000001",
        "leg1_entries": 1,
        "leg1_concluded": True,
        "leg2_closed": False,
        "responses_entered": 3,
        "responses_exited": 1,
        "unapplied_responses": 2,
        "complete": False,
        "sentence": ledger["sentence"],
    }
    key = json.loads(explain("99996146636629", "-a", FOX, "--json"))
    assert (key["kind"], key["complete"], key["error"]) == ("composite", False, False)
    quick = key["activities"][4]
    assert (quick["activity"], quick["digit"], quick["meaning"]) == ("quick", 6, "completed")
    assert quick["children"][0]["digits"] == "466366"
    assert quick["children"][0]["complete"] is True


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["abc"], "'abc' is not a row of digits"),
        (["-5"], None),
        ([""], "'' is not a row of digits"),
        (["٣٦٦"], "is not a row of digits"),
        (["123"], "As a ledger: a ledger has 15 digits, not 3"),
        (["000000000000000"], "the second digit is 9 or 8"),
        (["9" * 10_001], "10001 digits are more than"),
        (["366663000000000", "-a", "a,b"], "0 must follow its first 2 digits"),
        (["366663000000000", "-a", "a,,b"], "an activity id cannot be empty"),
        (["366663000000000", "-a", "a,a,b"], "'a' is there twice"),
        (["36636146636626", "-a", "a,b"], "a key of 2 activities has 15 digits; '366366' has 6"),
        (["99000000000000"], "its first 0 is missing: holdfast explain 099000000000000"),
        (["8890000000000000"], "must pad it to the next multiple of 15 digits"),
        (["888000002000002", "-a", "a,b,c"], "is a ledger, not a key: leave out --activities"),
        (["[bold]366"], "'[bold]366' is not a row of digits"),
    ],
)
def test_wrong_input_gets_a_sentence_and_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str | None
) -> None:
    if sentence is None:
        monkeypatch.setattr(sys, "argv", ["holdfast", "explain", *arguments])
        with pytest.raises(SystemExit) as stop:
            main()
        assert stop.value.code == 2
    else:
        assert sentence in refusal(monkeypatch, capsys, *arguments)


def test_a_composite_whose_child_is_not_complete_is_not_called_complete() -> None:
    assert explain("36636146636926").splitlines()[-1].startswith("Complete, but a child flow that it awaited is not")


def test_digits_may_be_grouped() -> None:
    assert explain("888_000002_000002") == explain("888 000002 000002") == explain("888000002000002")


def test_on_a_terminal_digits_are_coloured_by_what_they_say() -> None:
    out = StringIO()
    console = Console(file=out, force_terminal=True, color_system="standard", highlight=False, width=200)
    explanation_of("7689", "a,b,c,d").show(console)
    shown = out.getvalue()
    assert "\x1b[1;31m7" in shown, "errored is red"
    assert "\x1b[1;32m6" in shown, "completed is green"
    assert "\x1b[1;33m8" in shown, "started is yellow"


def test_the_version_is_shown() -> None:
    assert CliRunner().invoke(root, ["--version"]).output == f"holdfast {__version__}\n"


@pytest.mark.slow
def test_a_terminal_that_knows_only_ascii_gets_an_answer_too() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "explain", "36636146636626"],
        capture_output=True,
        check=True,
        env={"PYTHONIOENCODING": "ascii", "LC_ALL": "C"},
    )
    assert b"the child flow that it awaited" in done.stdout


@pytest.mark.slow
def test_python_dash_m_is_the_command_and_output_to_a_pipe_has_no_colour_codes() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "explain", "366663000000000"], capture_output=True, text=True, check=True
    )
    assert "collation key of 6 activities" in done.stdout
    assert "\x1b" not in done.stdout
