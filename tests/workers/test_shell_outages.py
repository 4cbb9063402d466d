"""``holdfast activity run`` during an outage of the store: the program continues, and its result is not lost (A5)."""

import signal
from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.postgres.fixtures import NewCluster
from tests.workers.processes import worker
from tests.workers.test_shell import APP, LONGEST_SECONDS, Shell

pytestmark = pytest.mark.slow


def read_until(lines: Iterable[str], text: str) -> None:
    """Read lines up to one that has the text."""
    assert any(text in line for line in lines), f"{text} was not printed"


def test_A5_the_result_of_a_program_outlasts_a_restart_of_the_database(new_cluster: NewCluster) -> None:
    cluster = new_cluster()
    store = cluster.url()
    with worker(store, app=APP):
        shell = Shell(store)
        for path in shell.folder.iterdir():
            path.unlink()
        program = shell.script('touch "$0.began"; until [ -e "$0.go" ]; do sleep 0.05; done; echo \'{"loss": 1}\'')
        shell.start("study")
        with shell.process("activity", "run", "--queue", "gpu", "--loop", "--json", "--", program) as loop:
            shell.wait_for("program.sh.began")
            cluster.stop()
            Path(f"{program}.go").touch()
            read_until(loop.stderr, "the store cannot be used, and is tried again")
            cluster.start()
            assert '"state":"COMPLETED"' in loop.stdout.readline()
            assert shell.result().code == 0
            shell.start("study", 3, "b")
            assert '"state":"COMPLETED"' in loop.stdout.readline(), "it serves the queue after the outage"
            cluster.stop()
            read_until(loop.stderr, "the store cannot be used, and is tried again")
            loop.send_signal(signal.SIGTERM)
            loop.communicate(timeout=LONGEST_SECONDS)
            assert loop.wait() == 0, "it drains at once, because no program runs"
            cluster.start()
        assert [attempt["state"] for attempt in shell.steps()] == ["COMPLETED"]
