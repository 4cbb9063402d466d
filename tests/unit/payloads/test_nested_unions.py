"""Unions inside of other types, which JSON cannot tell apart: stored with the name of their member."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Annotated, Any, ClassVar, Generic, NamedTuple, TypedDict, TypeVar

import msgspec
import pytest
from pydantic import BaseModel

from holdfast.errors import AnnotationError, PayloadError
from holdfast.payloads.encoding import decode, encode, payload_type


@dataclass(frozen=True)
class Cash:
    cents: int


@dataclass(frozen=True, slots=True)
class Card:
    cents: int
    number: str = "none"


class Coin(BaseModel):
    cents: int


class Note(BaseModel):
    cents: int


@dataclass
class Order:
    paid: Cash | Card
    unit: ClassVar[str] = "cent"
    more: list[Cash | Card | None] = field(default_factory=list[Cash | Card | None])
    by_name: dict[str, Cash | Card] | None = None
    note: str = "-"


@dataclass
class Leaf:
    value: int


@dataclass
class Tree:
    children: "list[Tree | Leaf]"


@dataclass
class Positive:
    amount: Cash | Card

    def __post_init__(self) -> None:
        if self.amount.cents <= 0:
            raise ValueError("not positive")


CASH = {"$type": "Cash", "value": {"cents": 1}}
CARD = {"$type": "Card", "value": {"cents": 2, "number": "42"}}
PAID = (Cash(1), Card(2, "42"))


STORED: list[Any] = [
    (list[Cash | Card], list(PAID), [CASH, CARD]),
    (Sequence[Cash | Card], list(PAID), [CASH, CARD]),
    (list[Cash | Card], [], []),
    (tuple[Cash | Card, ...], PAID, [CASH, CARD]),
    (tuple[int, Cash | Card], (7, Cash(1)), [7, CASH]),
    (set[Cash | Card], {Cash(1)}, [CASH]),
    (frozenset[Cash | Card], frozenset({Cash(1)}), [CASH]),
    (dict[str, Cash | Card], {"a": Cash(1), "b": Card(2, "42")}, {"a": CASH, "b": CARD}),
    (dict[int, list[Cash | Card]], {7: [Cash(1)]}, {"7": [CASH]}),
    (Mapping[str, Cash | Card], {"a": Cash(1)}, {"a": CASH}),
    (list[Cash | Card] | None, [Cash(1)], [CASH]),
    (list[Cash | Card] | None, None, None),
    (list[Cash | Card | None], [None], [{"$type": "None", "value": None}]),
    (list[Cash | Coin | Note], [Note(cents=3), Cash(1)], [{"$type": "Note", "value": {"cents": 3}}, CASH]),
    (
        Order,
        Order(Cash(1), [Card(2, "42")], {"a": Cash(1)}, "x"),
        {"paid": CASH, "more": [CARD], "by_name": {"a": CASH}, "note": "x"},
    ),
    (list[Order], [Order(Cash(1))], [{"paid": CASH, "more": [], "by_name": None, "note": "-"}]),
    (
        Tree,
        Tree([Leaf(1), Tree([Leaf(2)])]),
        {
            "children": [
                {"$type": "Leaf", "value": {"value": 1}},
                {"$type": "Tree", "value": {"children": [{"$type": "Leaf", "value": {"value": 2}}]}},
            ]
        },
    ),
    (Tree | Leaf, Leaf(1), {"$type": "Leaf", "value": {"value": 1}}),
]


@pytest.mark.parametrize(("annotation", "value", "stored"), STORED)
def test_a_union_inside_is_stored_with_the_names_of_its_members(annotation: Any, value: Any, stored: Any) -> None:
    data = encode(value, annotation)
    assert json.loads(data) == stored
    again = decode(data, annotation)
    assert again == value
    assert type(again) is type(value)
    assert payload_type(annotation).read(data) == value


def test_senders_may_leave_out_fields_with_defaults_and_names_where_one_member_fits() -> None:
    assert decode(b'{"paid": {"$type": "Cash", "value": {"cents": 1}}, "unknown": 7}', Order) == Order(Cash(1))
    assert decode(b'[{"cents": 2}]', list[Leaf | Card]) == [Card(2)]
    assert decode(b" null ", list[Cash | Card] | None) is None
    with pytest.raises(PayloadError, match="2 members"):
        decode(b'[{"cents": 2}]', list[Cash | Card])


@pytest.mark.parametrize(
    ("annotation", "value", "said"),
    [
        (list[Cash | Card], [Cash(1), 7], r"at `\$\[1\]`: expected .*Cash.*found int"),
        (list[Cash | Card], (Cash(1), Cash("x")), r"at `\$\[1\]\.cents`: expected int, found str"),  # type: ignore[arg-type]
        (list[Cash | Card], {Cash(1)}, r"at `\$`: expected list, found set"),
        (tuple[int, Cash | Card], (7,), r"at `\$`: expected a tuple of length 2, found tuple"),
        (dict[str, Cash | Card], {"a": 7}, r"at `\$\.a`: expected"),
        (dict[str, Cash | Card], {7: Cash(1)}, r"expected a key: str, found int"),
        (Order, Cash(1), r"at `\$`: expected Order, found Cash"),
        (Order, Order(Cash(1), [Card(2), 7]), r"at `\$\.more\[1\]`"),  # type: ignore[list-item]
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_its_path(annotation: Any, value: Any, said: str) -> None:
    with pytest.raises(PayloadError, match=said) as refused:
        encode(value, annotation, what="the input")
    assert str(refused.value).startswith("the input cannot be stored as JSON: ")


@pytest.mark.parametrize(
    ("annotation", "data", "said"),
    [
        (list[Cash | Card], b"7", r"Expected `array`, got `int` - at `\$`"),
        (list[Cash | Card], b"[1", "truncated"),
        (list[Cash | Card], b'[{"$type": "Cash", "value": {"cents": "x"}}]', r"at `\$\[0\]\.cents`"),
        (tuple[int, Cash | Card], b"[7]", "length 2"),
        (dict[int, Cash | Card], b'{"a": 7}', "Expected `int`"),
        (Order, b"{}", r"missing required field `paid` - at `\$`"),
        (list[Order], b"[{}]", r"missing required field `paid` - at `\$\[0\]`"),
        (Positive, b'{"amount": {"$type": "Cash", "value": {"cents": 0}}}', "not positive"),
    ],
)
def test_json_that_does_not_fit_is_refused_with_its_path(annotation: Any, data: bytes, said: str) -> None:
    with pytest.raises(PayloadError, match=said) as refused:
        decode(data, annotation, what="the input")
    assert str(refused.value).startswith("the input cannot be read: ")


def test_what_its_own_class_would_refuse_is_not_stored() -> None:
    changed = Positive(Cash(1))
    changed.amount = Cash(0)
    with pytest.raises(PayloadError, match="not positive"):
        encode(changed, Positive)
    assert decode(encode(Positive(Cash(1)), Positive), Positive) == Positive(Cash(1))


def tree_of(depth: int) -> Tree:
    tree = Tree([])
    for _ in range(depth):
        tree = Tree([tree])
    return tree


@pytest.mark.parametrize(
    ("depth", "said"),
    [(25, "nested too deep"), (40, "expected at most 64 levels"), (5_000, "expected at most 64 levels")],
)
@pytest.mark.parametrize("annotation", [Tree, Tree | Leaf, list[Tree | Leaf]])
def test_a_tree_that_is_too_deep_is_refused(annotation: Any, depth: int, said: str) -> None:
    tree = tree_of(depth)
    with pytest.raises(PayloadError, match=f"^the result cannot be stored as JSON: .*{said}"):
        encode([tree] if annotation == list[Tree | Leaf] else tree, annotation, what="the result")


def test_a_tree_as_deep_as_the_limit_is_stored() -> None:
    tree = tree_of(20)
    assert decode(encode(tree, Tree), Tree) == tree


@dataclass
class Ring:
    inside: "list[Ring] | tuple[Ring, ...] | dict[str, Ring] | None" = None


def test_a_value_that_contains_itself_is_refused_without_trying_all_members_at_each_level() -> None:
    tree = Tree([])
    tree.children.append(tree)
    with pytest.raises(
        PayloadError, match=r"at `\$\.children\[0\]`: .*found Tree that contains itself; break the cycle"
    ):
        encode(tree, Tree)
    ring = Ring()
    ring.inside = [Ring({"a": ring})]
    with pytest.raises(PayloadError, match="contains itself"):
        encode(ring, Ring)
    deep = Ring()
    for _ in range(1_000):
        deep = Ring([deep])
    with pytest.raises(PayloadError, match="expected at most 64 levels"):
        encode(deep, Ring)


@dataclass
class Cheque:
    cents: int
    bank: str


def test_a_stored_value_of_one_type_is_read_as_a_union_if_the_other_members_do_not_fit() -> None:
    stored = encode([Cash(1)], list[Cash])
    assert decode(stored, list[Cash | Cheque]) == [Cash(1)]
    with pytest.raises(PayloadError, match=r"2 members of .* - at `\$\[0\]`"):
        decode(stored, list[Cash | Card])
    with pytest.raises(PayloadError, match="missing required field"):
        decode(encode([Cash(1)], list[Cash | Cheque]), list[Cash])


@dataclass
class First:
    inside: "First | Second | None" = None


@dataclass
class Second:
    inside: "First | Second | None" = None
    number: int = 0


@dataclass
class Third:
    inside: "Third | Fourth | None"


@dataclass
class Fourth:
    inside: "Third | Fourth | None"
    number: int


def test_the_time_to_read_values_without_names_is_not_exponential_in_their_depth() -> None:
    depth = 60
    with pytest.raises(PayloadError, match="no member"):
        decode(b'{"inside":' * depth + b"null" + b"}" * depth, First | Second)
    value = decode(b'{"inside":' * depth + b"null" + b"}" * depth, Third | Fourth)
    for _ in range(depth):
        assert type(value) is Third
        value = value.inside
    assert value is None


@dataclass(frozen=True)
class Unhashable:
    numbers: list[int]


@dataclass(frozen=True)
class UnhashableToo:
    numbers: list[int]


def raise_error() -> int:
    raise LookupError("no default `$here`")


@dataclass
class WithoutDefault:
    paid: Cash | Card
    number: int = field(default_factory=raise_error)


UNHASHABLE = b'{"$type": "Unhashable", "value": {"numbers": [1]}}'
NO_DEFAULT = b'{"paid": {"$type": "Cash", "value": {"cents": 1}}}'
ENDED_BY_USER_CODE: list[Any] = [
    (set[Unhashable | UnhashableToo], b"[%b]" % UNHASHABLE, "unhashable type"),
    (frozenset[Unhashable | UnhashableToo], b"[%b]" % UNHASHABLE, "unhashable type"),
    (set[Unhashable | UnhashableToo] | None, b"[%b]" % UNHASHABLE, "unhashable type"),
    (WithoutDefault, NO_DEFAULT, "LookupError: no default"),
    (WithoutDefault | Order, b'{"$type": "WithoutDefault", "value": %b}' % NO_DEFAULT, "LookupError: no default"),
    (list[WithoutDefault], b"[%b]" % NO_DEFAULT, r"LookupError: no default `\$here` - at `\$\[0\]`"),
    (tuple[int, WithoutDefault], b"[7, %b]" % NO_DEFAULT, r"LookupError: no default `\$here` - at `\$\[1\]`"),
    (dict[str, WithoutDefault], b'{"a": %b}' % NO_DEFAULT, r"LookupError: no default `\$here` - at `\$\.a`"),
    (dict[str, Cash | Card], b'{"a": \xff}', "malformed|UTF-8"),
    (Order, b"", "it is empty"),
]


@pytest.mark.parametrize(("annotation", "data", "said"), ENDED_BY_USER_CODE)
def test_whatever_is_raised_while_a_value_is_read_is_a_payload_error(annotation: Any, data: bytes, said: str) -> None:
    with pytest.raises(PayloadError, match=f"^event '`[$]x`' cannot be read: .*({said})"):
        decode(data, annotation, what="event '`$x`'")


@dataclass
class Priced:
    dollars: int

    def __post_init__(self) -> None:
        if self.dollars < 5:
            raise ValueError("less than `$5` - at `$`, or so")


@pytest.mark.parametrize(
    ("annotation", "data", "said"),
    [
        (
            list[Priced | Cash],
            b'[{"$type": "Priced", "value": {"dollars": 1}}]',
            "less than `$5` - at `$`, or so - at `$[0]`",
        ),
        (
            list[Priced | Cash],
            b'[{"$type": "Priced", "value": {"dollars": ""}}]',
            "Expected `int`, got `str` - at `$[0].dollars`",
        ),
        (
            list[dict[int, int] | dict[str, Cash]],
            b'[{"$type": "dict[int, int]", "value": {"a": 1}}]',
            "Expected `int`, got `str` - at `key` in `$[0]`",
        ),
    ],
)
def test_the_path_is_that_of_the_value_whatever_the_texts_of_the_user_contain(
    annotation: Any, data: bytes, said: str
) -> None:
    with pytest.raises(PayloadError) as refused:
        decode(data, annotation, what="event '`$x`'")
    assert str(refused.value) == f"event '`$x`' cannot be read: {said}"


def test_the_path_of_a_value_that_cannot_be_stored_is_not_put_into_its_name() -> None:
    with pytest.raises(PayloadError, match=r"^event '`\$x`' cannot be stored as JSON: at `\$\[0\]`: expected"):
        encode([7], list[Cash | Card], what="event '`$x`'")
    cheap = Priced(5)
    cheap.dollars = 1
    with pytest.raises(PayloadError, match=r"Priced: less than `\$5` - at `\$`, or so - at `\$\[0\]`$"):
        encode([cheap], list[Priced | Cash])


T = TypeVar("T")


@dataclass
class Box(Generic[T]):
    content: T


class Row(NamedTuple):
    paid: Cash | Card


class Entry(TypedDict):
    paid: Cash | Card


class Packed(msgspec.Struct):
    paid: Cash | Card


@dataclass
class Documented:
    paid: Annotated[Cash | Card, "how it was paid"]


@pytest.mark.parametrize(
    ("annotation", "advice"),
    [
        (Annotated[Cash | Card, "how"], r"write `\S+Cash \| \S+Card` without Annotated"),
        (Annotated[list[Cash | Card], "how"], r"write `list\[\S+Cash \| \S+Card\]` without Annotated"),
        (list[Annotated[Cash | Card, "how"]], r"write `\S+Cash \| \S+Card` without Annotated"),
        (Documented, r"write `\S+Cash \| \S+Card` without Annotated"),
        (
            Box[Cash | Card],
            r"write a dataclass that is not generic, with the union in its field, instead of Box\[...\]",
        ),
        (Row, "use a dataclass that is not generic, a list, a tuple, a set or a dict instead of Row"),
        (Entry, "use a dataclass that is not generic, a list, a tuple, a set or a dict instead of Entry"),
        (Packed, "use a dataclass that is not generic, a list, a tuple, a set or a dict instead of Packed"),
    ],
)
def test_a_union_in_a_type_that_cannot_name_its_members_is_refused_with_what_to_write(
    annotation: Any, advice: str
) -> None:
    with pytest.raises(AnnotationError, match=advice):
        payload_type(annotation)


def test_a_dataclass_with_a_field_that_cannot_be_stored_is_refused_each_time() -> None:
    @dataclass
    class Wrong:
        paid: Cash | Card
        number: complex

    for _ in range(2):
        with pytest.raises(AnnotationError, match="complex"):
            payload_type(Wrong)


@dataclass
class Branch:
    """Every level has a list that all members of the union take."""

    inner: "list[Branch] | Sequence[Branch] | tuple[Branch | str, ...]"
    leaf: int = 0


def _branches(levels: int, leaf: Any = 0, *others: Any) -> Branch:
    branch = Branch([], leaf)
    for _ in range(levels):
        branch = Branch([branch, *others])
    return branch


def test_a_wrong_leaf_of_overlapping_unions_is_found_in_linear_time() -> None:
    with pytest.raises(PayloadError, match="cannot be stored as JSON"):
        encode(_branches(14, "wrong"), Branch)


def test_overlapping_unions_whose_last_member_fits_are_encoded_in_linear_time() -> None:
    value = _branches(14, 0, "x")
    assert encode(value, Branch).count(b'"x"') == 14


def test_a_union_of_keys_that_are_strings_is_refused() -> None:
    with pytest.raises(AnnotationError, match="use keys of one type"):
        payload_type(dict[date | str, int])
