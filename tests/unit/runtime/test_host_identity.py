"""W11: the death of a process on the same machine is seen at once, and nobody who may be alive is called dead."""

import os
import subprocess
import sys

import msgspec
import pytest

from holdfast.runtime.crash_detection import HostIdentity, decode_identity, is_dead, this_process

OWN = this_process()
pytestmark = pytest.mark.skipif(not OWN.boot_id, reason="this system does not tell who a process is")
NOBODY = 2**22 + 1
"""Above the highest pid that Linux gives."""


def changed(**fields: object) -> HostIdentity:
    return msgspec.structs.replace(OWN, **fields)


def test_W11_a_process_that_runs_is_alive() -> None:
    assert not is_dead(OWN, OWN)


def test_W11_a_missing_pid_and_a_reused_pid_are_dead() -> None:
    assert is_dead(changed(pid=NOBODY), OWN)
    assert is_dead(changed(started="1"), OWN), "the pid is in use, by a process that began at another time"


def test_W11_a_process_that_ended_and_was_not_waited_for_is_dead() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        with open(f"/proc/{ended.pid}/stat", encoding="ascii") as file:  # noqa: PTH123
            started = file.read().rpartition(")")[2].split()[19]
        assert is_dead(changed(pid=ended.pid, started=started), OWN)


@pytest.mark.parametrize("elsewhere", [{"boot_id": "another"}, {"namespace": 1}])
def test_W11_a_process_of_another_boot_or_namespace_is_not_judged(elsewhere: dict[str, object]) -> None:
    assert not is_dead(changed(pid=NOBODY, **elsewhere), OWN)


def test_W11_without_proc_no_process_is_judged() -> None:
    unknown = HostIdentity("", 0, NOBODY, "")
    assert not is_dead(unknown, unknown)


def test_W11_an_identity_is_decoded_or_None() -> None:
    assert decode_identity(OWN.encode()) == OWN
    assert decode_identity(b"{}") is None
    assert decode_identity(b"\xff") is None
