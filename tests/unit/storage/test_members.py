"""Every member says in whose name it acts, and whether other processes are notified of it."""

from typing import get_args

from tests.stores import memory

from holdfast.storage.members.attempts import Completion, OpenNextAttempt
from holdfast.storage.members.base import CommitMember, WorkerMember
from holdfast.storage.members.instances import Start
from holdfast.storage.members.member import Member
from holdfast.storage.relational.apply import dispatch as relational

MEMBERS = get_args(Member)
OWN_ACTORS = {Completion, OpenNextAttempt, Start}
"""Their actors depend on their fields."""
SILENT = {"ClaimAttempts", "ClaimInstances", "ClaimQueries", "DeleteQueries", "HeartbeatAttempt"}
"""They change nothing that another process waits for."""


def test_every_store_applies_every_member() -> None:
    assert set(relational.APPLY_BY_TYPE) == set(MEMBERS)
    assert set(memory.APPLY_BY_TYPE) == set(MEMBERS)


def test_W6_a_member_with_an_owner_acts_in_its_name() -> None:
    assert all(issubclass(member, CommitMember) for member in MEMBERS)
    for member in MEMBERS:
        has_owner = "owner" in member.__struct_fields__ or member in OWN_ACTORS
        assert has_owner == (issubclass(member, WorkerMember) or "actor" in vars(member)), member


def test_members_notify_other_processes_unless_they_are_known_to_be_silent() -> None:
    deciding = {member.__name__ for member in MEMBERS if "notifies" in vars(member)}
    assert deciding == SILENT | {"Start", "Turn"}
