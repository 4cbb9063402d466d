"""Every kind of member has a way to be applied."""

from typing import get_args

from holdfast.storage.members.member import Member
from holdfast.storage.relational.apply import dispatch as members


def test_every_member_can_be_applied() -> None:
    assert set(members.APPLY_BY_TYPE) == set(get_args(Member))
