"""Every kind of member has a way to be applied."""

from typing import get_args

from holdfast.storage.contract import Member
from holdfast.storage.relational import members


def test_every_member_can_be_applied() -> None:
    assert set(members.HOW) == set(get_args(Member))
