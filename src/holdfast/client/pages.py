"""Lists of instances come a page at a time, newest first."""

from typing import Final

from holdfast.authoring.options import whole_number

NEWEST: Final = 2**62
"""Before this come all."""
LONGEST_PAGE: Final = 10_000


def check_page(limit: int, before: int) -> None:
    """Refuse a page that makes no sense."""
    whole_number(limit, "limit", least=1, most=LONGEST_PAGE)
    whole_number(before, "before, the number of an instance,", least=0, most=NEWEST)
