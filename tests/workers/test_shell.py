"""``holdfast start`` and ``holdfast activity``: real processes, with a real worker that handles their rows (C2, C4)."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.forking.processes import Outcome
from tests.forking.processes import Process as Forked
from tests.workers.processes import folder_of, worker
from tests.workers.support import sound

STORES = ["sqlite", pytest.param("postgres", marks=pytest.mark.nightly)]
pytestmark = [pytest.mark.slow, pytest.mark.parametrize("store", STORES, indirect=True)]

APP = "tests.workers.external_app"
LONGEST_SECONDS = 30.0
HOLDFAST = f'{sys.executable} -c "from holdfast.cli import main; main()"'


class Shell:
    """Runs commands on a store that a worker serves."""

    def __init__(self, store: str) -> None:
        self.store = store
        self.folder = folder_of(store)

    def __call__(self, *words: str, env: Mapping[str, str] | None = None, text: str = "") -> Outcome:
        with self.process(*words, env=env) as process:
            said, complaints = process.communicate(text, timeout=LONGEST_SECONDS)
            assert "Traceback" not in complaints, complaints
            return Outcome(process.wait(), said, complaints)

    def process(self, *words: str, env: Mapping[str, str] | None = None) -> Forked:
        at = words.index("--") if "--" in words else len(words)
        return Forked("holdfast.cli:main", *words[:at], "--store", self.store, *words[at:], env=env, has_session=True)

    def ok(self, *words: str, env: Mapping[str, str] | None = None, text: str = "") -> str:
        done = self(*words, env=env, text=text)
        assert done.code == 0, done
        return done.said

    def json(self, *words: str, env: Mapping[str, str] | None = None) -> Any:
        return json.loads(self.ok(*words, "--json", env=env))

    def start(self, workflow: str, size: int = 3, id: str = "a") -> None:  # noqa: A002 - as users say
        self.ok("start", workflow, "--input", f"[{size}]", "--id", id)

    def open(self, *words: str) -> list[dict[str, Any]]:
        return self.json("activity", "list", *words)  # type: ignore[no-any-return]

    def offered(self, *, other_than: str = "") -> dict[str, Any]:
        """Wait until an activity is open."""
        until = time.monotonic() + LONGEST_SECONDS  # noqa: TID251 - a bound for real processes
        while time.monotonic() < until:  # noqa: TID251
            for activity in self.open():
                if activity["activity_exec_id"] != other_than:
                    return activity
        raise AssertionError(self("show", "a").said)

    def result(self, instance_id: str = "a") -> Outcome:
        return self("watch", instance_id)

    def script(self, text: str) -> str:
        path = self.folder / "program.sh"
        path.write_text(f"#!/bin/bash\n{text}\n", encoding="utf-8")
        path.chmod(0o755)
        return str(path)

    def wait_for(self, name: str) -> None:
        """Wait until a program has written a file."""
        until = time.monotonic() + LONGEST_SECONDS  # noqa: TID251 - a bound for real processes
        while not (self.folder / name).exists():
            assert time.monotonic() < until, f"{name} was not written"  # noqa: TID251
            time.sleep(0.01)

    def steps(self, instance_id: str = "a") -> list[dict[str, Any]]:
        steps: list[dict[str, Any]] = self.json("show", instance_id)["steps"]
        return [attempt for step in steps for attempt in step["attempts"]]


@pytest.fixture
def shell(store: str) -> Iterator[Shell]:
    with worker(store, app=APP):
        yield Shell(store)
    sound(store)


# ---------------------------------------------------------------- start and requests


def test_C2_start_prints_the_answer_and_waits_for_the_result(shell: Shell) -> None:
    done = shell("start", "learn", "--input", "3", "--id", "a", "--source", "cron")
    assert done.code == 0
    assert done.said == "learn a ACCEPTED\n"
    again = shell.json("start", "learn", "--input", "[3]", "--id", "a")
    assert (again["state"], again["instance_id"], again["refusal"]) == ("ACCEPTED", "a", None)
    shell.ok("activity", "run", "--queue", "gpu", "--", "echo", '{"loss": 1}')
    assert json.loads(shell.ok("start", "learn", "--input", "[3]", "--id", "a", "--wait", "--json")) == {"loss": 1}
    assert shell.ok("start", "learn", "--input", "[3]", "--id", "a", "--wait").splitlines()[1] == 'result {"loss":1}'


def test_C2_a_repeated_request_is_the_same_request(shell: Shell) -> None:
    for _ in range(2):
        shell.ok("start", "learn", "--input", "[3]", "--request-id", "r")
    assert [request["request_id"] for request in shell.json("requests")] == ["r"]
    other = shell("start", "learn", "--input", "[4]", "--request-id", "r")
    assert other.code == 2
    assert "taken by a request with another input" in other.complaints


def test_C2_a_refused_request_has_an_exit_code_of_its_own(shell: Shell) -> None:
    done = shell("start", "learn", "--input", '{"size": "big"}', "--id", "a")
    assert done.code == 5
    assert "the request was refused: learn(): argument `size`" in done.complaints
    assert shell("start", "learn", "--wait", "--input", "[]").code == 5
    shell.start("learn", 3, "b")
    assert "with a different input" in shell("start", "learn", "--input", "[4]", "--id", "b").complaints


def test_C2_a_request_that_no_worker_takes_is_reported_and_listed(shell: Shell) -> None:
    done = shell("start", "elsewhere", "--request-id", "r")
    assert done.code == 4
    assert "no live worker has the workflow 'elsewhere'" in done.complaints
    (listed,) = shell.json("requests", "--state", "NEW")
    assert (listed["request_id"], listed["is_served"]) == ("r", False)
    assert "no live worker has the workflow" in shell.ok("requests")
    assert "1 request for elsewhere, which no live worker has" in shell.ok("queues")


def test_open_external_activities_are_listed_by_queue(shell: Shell) -> None:
    shell.start("learn")
    activity = shell.offered()
    assert (activity["activity_name"], activity["input"], activity["queue"]) == ("train", {"size": 3}, "gpu")
    assert (activity["workflow_exec_id"], activity["workflow_name"], activity["attempt"]) == ("a", "learn", 1)
    assert (activity["heartbeat_ms"], activity["responses"]) == (2_000, None)
    assert shell.open("--queue", "other") == shell.open("--name", "other") == []
    (gpu,) = [queue for queue in shell.json("queues") if queue["name"] == "gpu"]
    assert (gpu["ready"], gpu["external"]) == (1, 1)
    assert "executors: holdfast activity list" in shell.ok("queues")


def test_C4_an_external_activity_waits_for_an_executor_and_is_not_stuck(store: str) -> None:
    with worker(store, app=APP):
        shell = Shell(store)
        shell.start("learn")
        shell.offered()
        shown = shell.ok("show", "a")
        assert "for an executor of queue gpu" in shown
        assert "stuck" not in shown
    with worker(store, app="tests.workers.app"):
        assert "no live worker has the external activity 'train', so reports about it" in shell.ok("show", "a")
    sound(store)


def test_C4_a_claim_waits_until_an_activity_is_open(shell: Shell) -> None:
    assert shell("activity", "claim", "--queue", "quotes").code == 1
    with shell.process("activity", "claim", "--queue", "quotes", "--wait", "30", "--env") as claim:
        shell.start("compare")
        said, complaints = claim.communicate(timeout=LONGEST_SECONDS)
        assert claim.wait() == 0, complaints
    assert "export HOLDFAST_RESPONSES=0" in said.splitlines()
    assert shell.open() == []
    (quotes,) = [queue for queue in shell.json("queues") if queue["name"] == "quotes"]
    assert (quotes["ready"], quotes["running"]) == (0, 1)
    (line,) = [line for line in shell.ok("queues").splitlines() if line.startswith("quotes")]
    assert line.endswith("executors")


def test_A1_an_activity_is_cancelled_by_its_name(shell: Shell) -> None:
    shell.start("learn")
    shell.offered()
    assert "has no activity 'charge'; open are train" in shell("activity", "cancel", "a", "charge").complaints
    assert "name the activity of the instance, too" in shell("activity", "cancel", "a").complaints
    assert "--exec-id" in shell("activity", "cancel", "a", "train", "--sequence", "1").complaints
    assert shell.ok("activity", "cancel", "a", "train") == "the cancellation of train of a is requested\n"
    assert shell.result().code == 1
    assert [attempt["state"] for attempt in shell.steps()] == ["CANCELLED"]
    again = shell("activity", "cancel", "a", "train")
    assert again.code == 2
    assert "'a' is FAILED, so none of its activities can be cancelled" in again.complaints


# ---------------------------------------------------------------- activity run


def test_C4_a_program_gets_the_input_and_its_output_is_the_result(shell: Shell) -> None:
    shell.start("learn", 7)
    program = shell.script(
        'input=$(cat); echo "input $input" >&2; echo "$HOLDFAST_WORKFLOW_EXEC_ID/$HOLDFAST_ACTIVITY_NAME/'
        '$HOLDFAST_WORKFLOW_NAME" > "$0.ids"; echo \'{"loss": 2}\''
    )
    done = shell("activity", "run", "--queue", "gpu", "--", program)
    assert done.code == 0, done
    assert 'input {"size":7}' in done.complaints
    assert Path(f"{program}.ids").read_text("utf-8") == "a/train/learn\n"
    assert shell.result().code == 0
    assert shell.steps()[0]["ledger"] == "888000001000001"


def test_C4_text_and_no_output_are_results(shell: Shell) -> None:
    shell.start("reserve")
    shell.ok("activity", "run", "--queue", "gpu", "--text", "--wait", "10", "--", "echo", "two words")
    assert json.loads(shell.ok("start", "reserve", "-i", "[3]", "--id", "a", "--wait", "--json")) == "two words"
    shell.start("reserve", 3, "b")
    done = shell("activity", "run", "--queue", "gpu", "--wait", "10", "--", "true")
    assert done.code == 1, "no output is null, which is not a str"
    assert "was refused" in done.complaints


@pytest.mark.parametrize(
    ("program", "options", "reason"),
    [
        ("echo not so >&2; exit 3", (), "program.sh exited with 3: not so"),
        ("kill -KILL $$", (), "program.sh was ended by SIGKILL"),
        ("echo loss 1", (), "standard output of program.sh is not a JSON value"),
        ("echo 1 2", (), "standard output of program.sh is not a JSON value"),
        (
            "head -c 40000 /dev/zero | tr '\\0' 1",
            ("--payload-limit", "20000"),
            "larger than the payload limit of 20,000",
        ),
        ("printf '\\377'", ("--text",), "standard output of program.sh is not text"),
        ("echo '\"x\"'", (), "the result of program.sh was refused"),
    ],
)
def test_C4_a_program_without_a_result_is_a_failure_with_a_sentence(
    shell: Shell, program: str, options: tuple[str, ...], reason: str
) -> None:
    shell.start("learn")
    done = shell("activity", "run", "--queue", "gpu", "--wait", "10", *options, "--", shell.script(program))
    assert done.code == 1, done
    assert reason in done.complaints
    if "exit" in program or "kill" in program:
        second = shell("activity", "run", "--queue", "gpu", "--wait", "10", "--", "false")
        assert second.code == 1
    ended = shell.result()
    assert ended.code == 1
    failures = json.dumps(shell.json("show", "a"))
    assert reason.split(" of ", maxsplit=1)[0] in failures


def test_C4_each_line_is_a_response_of_a_stream(shell: Shell) -> None:
    shell.start("compare")
    program = shell.script("for i in 3 1 2; do echo $i; sleep 0.05; done; printf 9")
    shell.ok("activity", "run", "--queue", "quotes", "--responses", "--wait", "10", "--", program)
    assert json.loads(shell.ok("start", "compare", "-i", "[3]", "--id", "a", "--wait", "--json")) == [3, 1, 2, 9]
    shell.start("compare", 3, "b")
    done = shell("activity", "run", "--queue", "quotes", "--responses", "--wait", "10", "--", "echo", "no")
    assert done.code == 1
    assert "a line of standard output of echo is not a JSON value" in done.complaints


def test_L4_a_response_that_does_not_fit_fails_the_attempt(shell: Shell) -> None:
    shell.start("compare")
    done = shell("activity", "run", "--queue", "quotes", "--responses", "--wait", "10", "--", "echo", '"x"')
    assert done.code == 1
    assert "a response was refused" in done.complaints


def test_C4_a_loop_runs_one_activity_after_the_other_and_drains(shell: Shell) -> None:
    program = shell.script('touch "$0.$HOLDFAST_WORKFLOW_EXEC_ID"; sleep 0.3; echo {}')
    with shell.process("activity", "run", "--queue", "gpu", "--loop", "--json", "--", program) as loop:
        for name in ("a", "b", "c"):
            shell.start("learn", 3, name)
        shell.wait_for("program.sh.c") if shell("watch", "b").code == 0 else None
        loop.send_signal(signal.SIGTERM)
        said, complaints = loop.communicate(timeout=LONGEST_SECONDS)
        assert loop.wait() == 0, complaints
    assert [json.loads(line)["state"] for line in said.splitlines()] == ["COMPLETED"] * 3
    assert "SIGTERM: claims nothing more" in complaints


def test_C4_an_idle_loop_ends_at_the_first_signal(shell: Shell) -> None:
    with shell.process("activity", "run", "--queue", "gpu", "--loop", "--json", "--", "true") as loop:
        shell.start("learn")
        assert json.loads(loop.stdout.readline())["state"] == "FAILED"
        loop.send_signal(signal.SIGTERM)
        loop.communicate(timeout=LONGEST_SECONDS)
        assert loop.wait() == 0


def test_C4_a_second_signal_stops_the_program_and_fails_the_attempt(shell: Shell) -> None:
    shell.start("learn")
    program = shell.script('touch "$0.began"; exec sleep 60')
    with shell.process("activity", "run", "--queue", "gpu", "--wait", "10", "--", program) as running:
        shell.wait_for("program.sh.began")
        running.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        running.send_signal(signal.SIGTERM)
        _, complaints = running.communicate(timeout=LONGEST_SECONDS)
        assert running.wait() == 1
    assert "the executor was shut down" in complaints
    assert shell.offered()["attempt"] == 2


def test_A6_a_cancelled_program_is_ended_and_stopped_is_reported(shell: Shell) -> None:
    shell.start("learn")
    program = shell.script('trap \'touch "$0.term"; exit 0\' TERM; touch "$0.began"; while true; do sleep 0.05; done')
    with shell.process("activity", "run", "--queue", "gpu", "--wait", "10", "--", program) as running:
        shell.wait_for("program.sh.began")
        exec_id = running.stdout.readline().split()[-1]
        assert shell.ok("activity", "cancel", "--exec-id", exec_id).startswith("CANCEL APPLIED")
        said, _ = running.communicate(timeout=LONGEST_SECONDS)
        assert running.wait() == 1
    assert "stopped train" in said
    shell.wait_for("program.sh.term")
    assert shell.result().code == 1
    assert [attempt["state"] for attempt in shell.steps()] == ["CANCELLED"]


def test_A6_a_program_that_ignores_sigterm_is_killed(shell: Shell) -> None:
    shell.start("learn")
    program = shell.script("trap '' TERM; touch \"$0.began\"; while true; do sleep 0.05; done")
    words = ("activity", "run", "--queue", "gpu", "--wait", "10", "--grace", "0.2", "--", program)
    with shell.process(*words) as running:
        shell.wait_for("program.sh.began")
        shell.ok("terminate", "a")
        running.communicate(timeout=LONGEST_SECONDS)
        assert running.wait() in {1, 6}


def test_C4_a_lost_claim_ends_the_program_and_has_an_exit_code_of_its_own(shell: Shell) -> None:
    shell.start("hurry")
    done = shell("activity", "run", "--queue", "gpu", "--wait", "10", "--", "sleep", "60")
    assert done.code == 6, done
    assert "is lost" in done.complaints
    assert [attempt["state"] for attempt in shell.steps()] == ["TIMED_OUT"]


def test_A5_an_attempt_whose_executor_was_killed_is_offered_again(shell: Shell) -> None:
    shell.start("learn")
    program = shell.script('echo $$ > "$0.began"; exec sleep 60')
    with shell.process("activity", "run", "--queue", "gpu", "--wait", "10", "--", program) as running:
        shell.wait_for("program.sh.began")
        first = running.stdout.readline().split()[-1]
        running.kill()
        running.wait()
    os.kill(int(Path(f"{program}.began").read_text("utf-8")), signal.SIGKILL)
    again = shell.offered(other_than=first)
    assert again["attempt"] == 2
    shell.ok("activity", "run", "--queue", "gpu", "--", "echo", "{}")
    assert shell.result().code == 0
    assert [attempt["state"] for attempt in shell.steps()] == ["TIMED_OUT", "COMPLETED"]


@pytest.mark.parametrize("state", ["QUEUED", "PREPARING"])
def test_A2_a_silent_claim_is_released_and_the_stale_claimant_is_refused(shell: Shell, state: str) -> None:
    shell.start("reserve")
    first = shell.offered()["activity_exec_id"]
    claimed = shell.json("activity", "claim", "--exec-id", first, "--as", state)
    again = shell.offered(other_than=first)
    assert again["attempt"] == 1, "a release is the same attempt"
    stale = {"HOLDFAST_ACTIVITY_EXEC_ID": first, "HOLDFAST_CLAIM": claimed["claim"]}
    for words in (["heartbeat"], ["complete", '"x"'], ["release"], ["fail", "late"]):
        assert shell("activity", *words, env=stale).code == 6, words
    assert shell.ok("activity", "note", '"late"', env=stale) == "NOTE APPLIED\n"
    shell.ok("activity", "run", "--queue", "gpu", "--text", "--", "echo", "x")
    assert shell.result().code == 0


def test_A2_of_two_claimants_one_has_the_activity(shell: Shell) -> None:
    for round in range(5):  # noqa: A001
        shell.start("study", 3, f"a{round}")
        exec_id = shell.offered()["activity_exec_id"]
        words = ("activity", "claim", "--exec-id", exec_id, "--json")
        with shell.process(*words) as one, shell.process(*words) as other:
            ends = [process.communicate(timeout=LONGEST_SECONDS) for process in (one, other)]
            assert sorted((one.wait(), other.wait())) == [0, 6], ends
        (claimed,) = [json.loads(said) for said, _ in ends if said]
        ids = {"HOLDFAST_ACTIVITY_EXEC_ID": exec_id, "HOLDFAST_CLAIM": claimed["claim"]}
        assert shell("activity", "complete", "{}", env={**ids, "HOLDFAST_CLAIM": "of another"}).code == 6
        assert shell("activity", "complete", "{}", "--exec-id", exec_id).code == 5, "no claim is given"
        assert shell.ok("activity", "complete", "{}", env=ids) == "COMPLETED APPLIED\n"


# ---------------------------------------------------------------- reports


def test_C4_a_script_claims_and_reports_by_commands(shell: Shell) -> None:
    shell.start("compare")
    shell.offered()
    script = shell.script(
        f"""set -euo pipefail
hf() {{ {HOLDFAST} activity "$@"; }}
eval "$(hf claim --queue quotes --env)"
test "$HOLDFAST_INPUT" = '{{"count":3}}'
hf heartbeat --details '{{"done": 1}}'
for value in 5 6; do hf respond "$value"; done
echo 7 | hf respond -
hf note "seen" --text
hf complete
hf note '"late"'
hf complete && exit 9 || test $? = 6
"""
    )
    variables = {**os.environ, "HOLDFAST_STORE": shell.store}
    done = subprocess.run([script], env=variables, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done
    assert json.loads(shell.ok("start", "compare", "-i", "[3]", "--id", "a", "--wait", "--json")) == [5, 6, 7]


def test_L10_a_result_before_running_waits(shell: Shell) -> None:
    shell.start("study")
    claimed = shell.json("activity", "claim", "--exec-id", shell.offered()["activity_exec_id"], "--as", "queued")
    ids = {"HOLDFAST_ACTIVITY_EXEC_ID": claimed["activity_exec_id"], "HOLDFAST_CLAIM": claimed["claim"]}
    early = shell("activity", "complete", "{}", env=ids)
    assert (early.code, early.said) == (0, "COMPLETED WAITING\n")
    assert "TOO EARLY" in early.complaints
    shell("activity", "claim", env=ids)
    assert shell.result().code == 0


def test_C4_fail_release_and_sequences(shell: Shell) -> None:
    shell.start("study")
    first = shell.offered()["activity_exec_id"]
    claimed = shell.json("activity", "claim", "--exec-id", first, "--as", "QUEUED")
    ids = {"HOLDFAST_ACTIVITY_EXEC_ID": first, "HOLDFAST_CLAIM": claimed["claim"]}
    assert shell.ok("activity", "release", env=ids) == "RELEASE APPLIED\n"
    second = shell.offered(other_than=first)["activity_exec_id"]
    claimed = shell.json("activity", "claim", "--exec-id", second)
    ids = {"HOLDFAST_ACTIVITY_EXEC_ID": second, "HOLDFAST_CLAIM": claimed["claim"]}
    assert shell("activity", "stopped", env=ids).code == 5, "it was not cancelled"
    assert shell("activity", "respond", "1", env=ids).code == 5, "it is not a stream"
    assert shell("activity", "heartbeat", "--sequence", "2", env=ids).said == "HEARTBEAT WAITING\n"
    assert shell.ok("activity", "heartbeat", "--sequence", "1", env=ids) == "HEARTBEAT APPLIED\n"
    assert shell("activity", "heartbeat", "--sequence", "1", env=ids).said == "HEARTBEAT DUPLICATE\n"
    shell.ok("activity", "cancel", env=ids)
    beat = shell("activity", "heartbeat", "--json", env=ids)
    assert beat.code == 1
    assert json.loads(beat.said)["cancel_requested"] is True
    assert shell.ok("activity", "fail", "no money", "--type", "Declined", "--final", env=ids) == "FAILED APPLIED\n"
    assert shell.result().code == 1


def test_a_launched_program_takes_the_attempt_from_the_environment(shell: Shell) -> None:
    shell.start("study")
    claimed = shell.json("activity", "claim", "--exec-id", shell.offered()["activity_exec_id"], "--as", "QUEUED")
    ids = {"HOLDFAST_ACTIVITY_EXEC_ID": claimed["activity_exec_id"], "HOLDFAST_CLAIM": claimed["claim"]}
    assert shell("activity", "run", "--", "echo", "{}", env={**ids, "HOLDFAST_CLAIM": "of another"}).code == 6
    shell.ok("activity", "run", "--", "echo", "{}", env=ids)
    assert shell.result().code == 0


def test_C2_a_report_without_a_worker_is_stored_and_applied_later(store: str) -> None:
    with worker(store, app=APP) as first:
        shell = Shell(store)
        shell.start("learn")
        claimed = shell.json("activity", "claim", "--exec-id", shell.offered()["activity_exec_id"])
        first.kill()
    ids = {"HOLDFAST_ACTIVITY_EXEC_ID": claimed["activity_exec_id"], "HOLDFAST_CLAIM": claimed["claim"]}
    done = shell("activity", "complete", "{}", env=ids)
    assert (done.code, done.said) == (4, "COMPLETED NEW\n")
    time.sleep(2.1)  # its heartbeat time passes: the row counts from its insert
    with worker(store, app=APP):
        assert shell.result().code == 0
    sound(store)
