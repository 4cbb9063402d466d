"""Every member says in whose name it acts, and every store applies it."""

from typing import get_args

from tests.stores import memory

from holdfast.storage.contract import CODE_CHECKS, COUNTS, OPEN_CONTRACT, RESTORE, SEARCH
from holdfast.storage.members.attempts import Completion, OpenNextAttempt
from holdfast.storage.members.base import CommitMember, WorkerMember
from holdfast.storage.members.instances import Start
from holdfast.storage.members.member import Member
from holdfast.storage.members.row_handling import ContractMember
from holdfast.storage.postgres.store import PostgresStore
from holdfast.storage.relational.apply import dispatch as relational
from holdfast.storage.sqlite.store import SqliteStore

MEMBERS = get_args(Member)
OWN_ACTORS = {Completion, OpenNextAttempt, Start}
"""Their actors depend on their fields."""


def test_every_store_applies_every_member() -> None:
    assert set(relational.APPLY_BY_TYPE) == set(MEMBERS)
    assert set(memory.APPLY_BY_TYPE) == set(MEMBERS) - set(get_args(ContractMember))


def test_W6_a_member_with_an_owner_acts_in_its_name() -> None:
    assert all(issubclass(member, CommitMember) for member in MEMBERS)
    for member in MEMBERS:
        has_owner = "owner" in member.__struct_fields__ or member in OWN_ACTORS
        assert has_owner == (issubclass(member, WorkerMember) or "actor" in vars(member)), member


def test_both_databases_declare_every_capability_that_the_conformance_kit_skips_without_it() -> None:
    for store in (SqliteStore, PostgresStore):
        assert store.capabilities >= {OPEN_CONTRACT, SEARCH, RESTORE, COUNTS, CODE_CHECKS}, store
