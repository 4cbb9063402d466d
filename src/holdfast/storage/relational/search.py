"""Pages and counts of instances that match a filter, as statements that follow one index (F6-F9).

A statement has a *lead*: the index ranges that contain every instance the filter matches. Ranges of a state, a
workflow or an attribute's value are in the order of the list, so that a page ends after a few rows. A lead that is a
set of numbers (children of a parent, a range of an attribute) is sorted. Without either the list itself is the lead.
The other tests are checked for each row of the lead.

No statistics of the database are used, because a table may have none. The lead is chosen by *probes*, which count the
first rows of each candidate, and the statements leave the planner no other index: see `Dialect`.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias

from holdfast.core.filters import (
    CLOSED,
    CREATED,
    Between,
    Comparison,
    Field,
    Filter,
    In,
    Instant,
    IsNull,
    Operator,
    Or,
    StartsWith,
    conjuncts,
    has_time_range,
)
from holdfast.core.lifecycle import InstanceState
from holdfast.storage.records import INSTANCE_COLUMNS
from holdfast.storage.relational.conditions import (
    PARENT_ID,
    Bindings,
    Bounds,
    KeyRange,
    condition,
    following,
    key_of,
    key_range,
    milliseconds,
)
from holdfast.storage.relational.reads import BoundStatement
from holdfast.storage.search import MOST_UNINDEXED, OrderField, PageOrder, Position

PROBED_ROWS: Final = 2_000
"""Rows of an ordered candidate that a probe counts: a lead of fewer is read to its end."""
SORTED_ROWS: Final = 20_000
"""Rows of a set that are sorted for one page. Beyond it the list is read in its order, which meets matches sooner."""
MOST_BRANCHES: Final = 100
"""Ranges of one lead."""

STATUS: Final = "(SELECT value FROM kept WHERE kept.number = i.number AND kept.key = '')"
LISTED: Final = ", ".join([*(f"i.{column}" for column in INSTANCE_COLUMNS), STATUS, PARENT_ID])
KEYS: Final = {
    OrderField.CREATED: "i.created_at_ms",
    OrderField.CLOSED: "i.closed_at_ms",
    OrderField.DURATION: "(i.closed_at_ms - i.created_at_ms)",
}


class Ordered(NamedTuple):
    """The range of an index whose first columns have these values and whose next ones are the order of the list."""

    table: str
    index_name: str
    columns: tuple[str, ...]
    values: tuple[str, ...]
    key: str = "created_at_ms"
    only: str = ""
    """The condition of a partial index, on the table `i`."""


class NumberSet(NamedTuple):
    """A statement that returns numbers of instances, each once, with its values in place of `{}`."""

    statement: str
    values: tuple[object, ...]

    def text(self, bindings: Bindings) -> str:
        return self.statement.format(*map(bindings.bind, self.values))

    def probe(self, bindings: Bindings) -> str:
        """The same numbers, some of them more than once: to find them once, the database would sort them first."""
        return self.text(bindings).replace("SELECT DISTINCT", "SELECT", 1)


Branch: TypeAlias = Ordered | NumberSet


class Lead(NamedTuple):
    """Branches that together contain every match. `implied` is a part of the filter that is true for all their rows."""

    branches: tuple[Branch, ...]
    implied: Filter | None = None
    is_merged: bool = False
    """The branches have no row in common, and are merged before the tests: one without a match is not read to its
    end."""

    @property
    def is_ordered(self) -> bool:
        return all(isinstance(branch, Ordered) for branch in self.branches)


INDEXED_STATE: Final = f"i.state <> '{InstanceState.COMPLETED}' AND i.state <> '{InstanceState.RUNNING}'"
UNOWNED: Final = "i.owner IS NULL AND i.closed_at_ms IS NULL"
OWNED_NUMBERS: Final = "SELECT number FROM instances WHERE owner IS NOT NULL"
WALK: Final = Lead(())
"""The list itself: the instances of every workflow, in the order of the list (see `Search.walk`)."""
CLOSED_WALK: Final = Lead((Ordered("instances", "instances_by_closed", (), (), "closed_at_ms"),))


class Dialect(Protocol):
    """How a database is made to follow one index."""

    position: str
    """The function that finds a text in a text."""

    def index_of(self, branch: Ordered) -> str:
        """The words behind the table that name the index."""
        ...

    def range_of(
        self, columns: Sequence[str], values: Sequence[str], key: str, bounds: tuple[str, str] | None
    ) -> list[str]:
        """The conditions of a range: columns equal to values, and the key within bounds."""
        ...

    def order_of(self, columns: Sequence[str], direction: str) -> str:
        """What precedes the key and the number in ORDER BY, with a comma behind it."""
        ...

    def merged(self, branches: Sequence[str], direction: str) -> str:
        """The union of branches that return a key and a number, merged in their order and not sorted."""
        ...

    def joined(self, condition: str) -> str:
        """``k``, which has numbers, joined with its instances ``i``, looked up one by one."""
        ...


# ---------------------------------------------------------------- the parts of a filter


def bounds_of(found: Filter | None, field: Field) -> Bounds | None:
    """The range of a time that all matches have; None if the filter has no test of it."""
    ranges = [
        milliseconds(part)
        for part in conjuncts(found)
        if isinstance(part, Comparison | Between) and part.field == field
    ]
    given = [each for each in ranges if each is not None]
    if not given:
        return None
    whole = Bounds()
    for each in given:
        whole = whole.within(each)
    return whole


def _tests(part: Filter, field: Field) -> bool:
    return isinstance(part, Comparison | In | Between | IsNull | StartsWith) and part.field == field


def leads_of(found: Filter | None) -> list[Lead]:
    """Every lead that the filter has, without the walk through the whole list."""
    leads = [lead for part in conjuncts(found) for lead in _leads(part)]
    return [lead for lead in leads if len(lead.branches) <= MOST_BRANCHES]


def _leads(part: Filter) -> Iterable[Lead]:
    match part:
        case Or():
            yield from _joined_leads([leads_of(each) for each in part.parts])
        case Comparison(operator=Operator.EQUAL):
            yield from _equal_leads(part, (part.value,))
        case In():
            yield from _equal_leads(part, part.values)
        case Comparison() | Between() | StartsWith() if part.field.is_attribute:
            allowed = key_range(part)
            if allowed is not None:
                yield Lead((_numbers_in_range(part.field.name, allowed),), part)
        case Comparison() | Between() if part.field.name == "closed":
            bounds = milliseconds(part)
            if bounds is not None:
                yield Lead((NumberSet(CLOSED_NUMBERS, (bounds.low, bounds.high)),), part)
        case StartsWith() if part.field.name == "id":
            if part.prefix.strip("\U0010ffff"):
                values = (part.prefix, following(part.prefix))
                yield Lead((NumberSet(NUMBERS_OF_PREFIX, values * 2),), part)
        case Comparison() | IsNull() | Between() | StartsWith():
            pass
        case _:
            return
    yield from _implied_leads(part)


def _joined_leads(options: Sequence[Sequence[Lead]]) -> Iterable[Lead]:
    """The leads of parts of which one has to be true: each of them needs one."""
    if not all(options):
        return
    if any(WALK in option for option in options):
        yield WALK
    else:
        yield Lead(tuple(branch for option in options for branch in option[0].branches))


def _implied_leads(part: Filter) -> Iterable[Lead]:
    """A test that is only true in one state, as most tests of an error are."""
    for field, state in ((Field("error"), InstanceState.FAILED), (Field("blocked"), InstanceState.BLOCKED)):
        if _tests(part, field) and not (isinstance(part, IsNull) and not part.is_negated):
            yield Lead((_of_state(state.value),))


def _equal_leads(part: Comparison | In, values: Sequence[object]) -> Iterable[Lead]:
    given = tuple(dict.fromkeys(values))
    if part.field.is_attribute:
        keys = dict.fromkeys(key_of(value) for value in given)  # type: ignore[arg-type]
        yield Lead(tuple(_of_attribute(part.field.name, key) for key in keys), part)
        return
    match part.field.name:
        case "state" if InstanceState.COMPLETED in given:
            yield WALK  # most instances end so
        case "state" if InstanceState.RUNNING in given:
            others = [_of_state(str(value)) for value in given if value != InstanceState.RUNNING]
            yield Lead((NumberSet(OWNED_NUMBERS, ()), _UNOWNED_INSTANCES, *others))
        case "state":
            yield Lead(tuple(_of_state(str(value)) for value in given), part)
        case "workflow":
            yield Lead(tuple(_of_workflow(str(value)) for value in given), part)
        case "id":
            yield Lead(tuple(NumberSet(NUMBERS_OF_ID, (value, value)) for value in given), part)
        case "parent":
            yield Lead(tuple(NumberSet(CHILDREN_OF_ID, (value, value)) for value in given), part)
        case "root":
            yield Lead(tuple(NumberSet(FAMILY_OF_ID, (value, value)) for value in given))
        case "closed":
            times = [value for value in given if isinstance(value, Instant)]
            bounds = [milliseconds(Comparison(part.field, Operator.EQUAL, time)) or Bounds() for time in times]
            yield Lead(tuple(NumberSet(CLOSED_NUMBERS, (each.low, each.high)) for each in bounds), part)
        case _:
            return


def _of_state(state: str) -> Ordered:
    return Ordered("instances", "instances_by_state", ("state",), (state,), only=INDEXED_STATE)


_UNOWNED_INSTANCES: Final = Ordered("instances", "instances_unowned", (), (), only=UNOWNED)


def _of_workflow(workflow: str) -> Ordered:
    return Ordered("instances", "instances_by_workflow", ("workflow",), (workflow,))


def _of_attribute(name: str, key: str) -> Ordered:
    return Ordered("attributes", "attributes_by_value", ("name", "value"), (name, key))


_OF_ID: Final = (
    "SELECT number FROM instances WHERE {test} AND superseded_at_ms IS NULL"
    " UNION ALL SELECT number FROM instances WHERE {other} AND superseded_at_ms IS NOT NULL"
)
NUMBERS_OF_ID: Final = _OF_ID.format(test="id = {0}", other="id = {1}")
NUMBERS_OF_PREFIX: Final = _OF_ID.format(test="id >= {0} AND id < {1}", other="id >= {2} AND id < {3}")
CHILDREN_OF_ID: Final = (
    f"SELECT child.number FROM ({NUMBERS_OF_ID}) AS above CROSS JOIN instances AS child"
    " WHERE child.parent = above.number"
)
FAMILY_OF_ID: Final = (
    f"WITH RECURSIVE family(number) AS (SELECT number FROM ({NUMBERS_OF_ID}) AS above UNION"
    " SELECT child.number FROM family CROSS JOIN instances AS child WHERE child.parent = family.number)"
    " SELECT number FROM family"
)
"""The instances with an id and all below them: more than those whose root has the id, so it implies nothing."""
CLOSED_NUMBERS: Final = "SELECT number FROM instances WHERE closed_at_ms >= {0} AND closed_at_ms <= {1}"


def _numbers_in_range(name: str, allowed: KeyRange) -> NumberSet:
    places = iter(range(1, 9))
    values: list[str] = []
    tests: list[str] = []
    for sign, bound in ((">=", allowed.low), (">", allowed.after), ("<", allowed.end), ("<=", allowed.last)):
        if bound is not None:
            tests.append(f"value {sign} {{{next(places)}}}")
            values.append(bound)
    return NumberSet(
        f"SELECT DISTINCT number FROM attributes WHERE name = {{0}} AND {' AND '.join(tests)}", (name, *values)
    )


# ---------------------------------------------------------------- statements


class Search:
    """The statements of one page or count, on a lead that is chosen with the answers to its probes."""

    most_unindexed = MOST_UNINDEXED

    def __init__(self, dialect: Dialect, found: Filter | None, order: PageOrder, after: Position | None) -> None:
        self._dialect = dialect
        self._filter = found
        self._order = order
        self._after = after
        self._created = bounds_of(found, CREATED) or Bounds()
        self._closed = bounds_of(found, CLOSED) or Bounds()
        found_leads = leads_of(found)
        self._may_walk = WALK in found_leads or has_time_range(found)
        self.leads = [lead for lead in found_leads if lead is not WALK]
        """The candidates. Without any the list itself is the lead."""
        if order.field is not OrderField.CREATED:
            self.leads = [Lead(tuple(map(self._as_set, lead.branches)), lead.implied) for lead in self.leads]

    def walk(self, workflows: Sequence[str]) -> list[Lead]:
        """The list itself, by the index that every workflow has, in leads of a hundred workflows each.

        Their pages, each in order, have to be merged. No index has all instances in the order of the list: it would
        cost every start.
        """
        branches: list[Branch] = [_of_workflow(workflow) for workflow in workflows]
        if self._order.field is not OrderField.CREATED:
            branches = [self._as_set(branch) for branch in branches]
        places = range(0, len(branches), MOST_BRANCHES)
        is_merged = self._order.field is OrderField.CREATED
        return [Lead(tuple(branches[place : place + MOST_BRANCHES]), is_merged=is_merged) for place in places]

    def _as_set(self, branch: Branch) -> NumberSet:
        if isinstance(branch, NumberSet):
            return branch
        tests = [f"{column} = {{{place}}}" for place, column in enumerate(branch.columns)]
        first = len(tests)
        tests.append(f"created_at_ms >= {{{first}}} AND created_at_ms <= {{{first + 1}}}")
        if branch.only:
            tests.append(branch.only)
        text = f"SELECT number FROM {branch.table} AS i WHERE {' AND '.join(tests)}"
        return NumberSet(text, (*branch.values, *self._created))

    @property
    def reads_everything(self) -> bool:
        """Whether the search may read every instance: neither an index nor a time range limits its filter (F8)."""
        return self._filter is not None and not self.leads and not self._may_walk

    @property
    def has_choice(self) -> bool:
        """Whether probes are needed."""
        return len(self.leads) > 1 or any(not lead.is_ordered for lead in self.leads)

    def probes(self) -> list[BoundStatement]:
        """A statement for each candidate: how many rows it has, up to a limit, and the time of the last of them."""
        return [self._probe(lead) for lead in self.leads]

    def _probe(self, lead: Lead) -> BoundStatement:
        bindings = Bindings()
        if lead.is_ordered:
            rows = self._rows(lead, "", bindings, bindings.bind(PROBED_ROWS))
            last = "max" if self._order.is_ascending else "min"
            text = f"SELECT count(*), {last}(key) FROM ({rows}) AS found"
        else:
            sets = [branch.probe(bindings) for branch in lead.branches if isinstance(branch, NumberSet)]
            sets += [self._as_set(branch).text(bindings) for branch in lead.branches if isinstance(branch, Ordered)]
            limit = bindings.bind(SORTED_ROWS + 1)
            limited = " UNION ALL ".join([f"SELECT * FROM ({each}) AS s{place}" for place, each in enumerate(sets)])
            text = f"SELECT count(*), 0 FROM (SELECT * FROM ({limited}) AS every LIMIT {limit}) AS found"
        return (text, *bindings.values)

    def choose(self, answers: Sequence[tuple[int, int | None]]) -> Lead:
        """The lead that reads the fewest rows, by the answers to the probes. `WALK` stands for those of `walk`."""
        probed = list(zip(self.leads, answers, strict=False))
        if len(self.leads) == 1 and not self.has_choice:
            return self.leads[0]
        short = [(count, lead) for lead, (count, _) in probed if count < PROBED_ROWS]
        if short:
            return min(short, key=lambda each: each[0])[1]
        ordered = [(last or 0, lead) for lead, (_, last) in probed if lead.is_ordered]
        if ordered:  # the rows of the sparsest reach the farthest
            return (max if self._order.is_ascending else min)(ordered, key=lambda each: each[0])[1]
        sets = [(count, lead) for lead, (count, _) in probed if count <= SORTED_ROWS]
        if sets:
            return min(sets, key=lambda each: each[0])[1]
        return CLOSED_WALK if self._order.field is OrderField.CLOSED else WALK

    def page(self, lead: Lead, limit: int) -> BoundStatement:
        """The rows of a page: the columns of an instance as in lists, and the key of the order."""
        bindings = Bindings()
        rows = self._matches(lead, bindings, limit)
        direction = self._order.direction
        text = (
            f"SELECT {LISTED}, page.key FROM ({rows}) AS page CROSS JOIN instances AS i WHERE i.number = page.number"
            f" ORDER BY page.key {direction}, page.number {direction}"
        )
        return (text, *bindings.values)

    def count(self, lead: Lead, limit: int) -> BoundStatement:
        """The number of matches, up to a limit."""
        bindings = Bindings()
        return (f"SELECT count(*) FROM ({self._matches(lead, bindings, limit)}) AS found", *bindings.values)

    def _matches(self, lead: Lead, bindings: Bindings, limit: int) -> str:
        rest = [part for part in conjuncts(self._filter) if part is not lead.implied and not self._is_bound(part, lead)]
        tests = [condition(part, bindings, self._dialect.position) for part in rest]
        return self._rows(lead, " AND ".join(tests), bindings, bindings.bind(limit))

    def _is_bound(self, part: Filter, lead: Lead) -> bool:
        """Whether the bounds of every branch make a test of a time true."""
        bound = CLOSED if lead is CLOSED_WALK else CREATED
        if not lead.is_ordered or not isinstance(part, Comparison | Between) or part.field != bound:
            return False
        return milliseconds(part) is not None

    def _merged_rows(self, lead: Lead, tests: str, bindings: Bindings, limit: str) -> str:
        """As `_rows`, for branches that are merged first. Each is read only as far as the page needs."""
        direction = self._order.direction
        branches = [self._branch_of_merge(branch, bindings) for branch in lead.branches if isinstance(branch, Ordered)]
        merged = self._dialect.merged(branches, direction)
        joined = self._dialect.joined(tests) if tests else ""
        return (
            f"SELECT k.key AS key, k.number AS number FROM ({merged}) AS k{joined}"
            f" ORDER BY k.key {direction}, k.number {direction} LIMIT {limit}"
        )

    def _branch_of_merge(self, branch: Ordered, bindings: Bindings) -> str:
        equal = [
            f"i.{column} = {bindings.bind(value)}" for column, value in zip(branch.columns, branch.values, strict=True)
        ]
        bounds = self._bounds_behind(self._created)
        if bounds != Bounds():
            equal.append(
                f"i.{branch.key} >= {bindings.bind(bounds.low)} AND i.{branch.key} <= {bindings.bind(bounds.high)}"
            )
        tests = " AND ".join([*equal, *self._behind(f"i.{branch.key}", "i.number", bindings)])
        source = f"instances AS i {self._dialect.index_of(branch)}"
        return f"SELECT i.{branch.key} AS key, i.number AS number FROM {source} WHERE {tests}"

    def _bounds_behind(self, bounds: Bounds) -> Bounds:
        """Bounds of a key, from the last row of the page before on."""
        if self._after is None:
            return bounds
        key = self._after.key
        return bounds.within(Bounds(low=key) if self._order.is_ascending else Bounds(high=key))

    def _rows(self, lead: Lead, tests: str, bindings: Bindings, limit: str) -> str:
        """The keys and numbers of the first rows of a lead for which the tests are true, in order."""
        if lead.is_merged:
            return self._merged_rows(lead, tests, bindings, limit)
        rows = [self._branch(branch, tests, bindings, limit) for branch in lead.branches]
        if len(rows) == 1:
            return rows[0]
        direction = self._order.direction
        union = " UNION ".join([f"SELECT key, number FROM ({text}) AS b{place}" for place, text in enumerate(rows)])
        return f"SELECT key, number FROM ({union}) AS every ORDER BY key {direction}, number {direction} LIMIT {limit}"

    def _branch(self, branch: Branch, tests: str, bindings: Bindings, limit: str) -> str:
        if isinstance(branch, NumberSet):
            return self._set_rows(branch, tests, bindings, limit)
        bounds = self._bounds_behind(self._closed if branch.key == "closed_at_ms" else self._created)
        is_whole = bounds == Bounds() and branch.key == "created_at_ms"  # the index of closed_at_ms has no null
        table = "i" if branch.table == "instances" else "k"
        source = f"{branch.table} AS {table} {self._dialect.index_of(branch)}"
        conditions = [
            *self._dialect.range_of(
                [f"{table}.{column}" for column in branch.columns],
                [bindings.bind(value) for value in branch.values],
                f"{table}.{branch.key}",
                None if is_whole else (bindings.bind(bounds.low), bindings.bind(bounds.high)),
            ),
            *self._behind(f"{table}.{branch.key}", f"{table}.number", bindings),
        ]
        if branch.only:
            conditions.append(branch.only)
        if table == "i" and tests:
            conditions.append(tests)
        elif tests:
            source += self._dialect.joined(tests)
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        direction = self._order.direction
        first = self._dialect.order_of([f"{table}.{column}" for column in branch.columns], direction)
        return (
            f"SELECT {table}.{branch.key} AS key, {table}.number AS number FROM {source}"
            f"{where} ORDER BY {first}{table}.{branch.key} {direction}, {table}.number {direction} LIMIT {limit}"
        )

    def _set_rows(self, branch: NumberSet, tests: str, bindings: Bindings, limit: str) -> str:
        key = KEYS[self._order.field]
        direction = self._order.direction
        conditions = [*([tests] if tests else []), *self._behind(key, "i.number", bindings)]
        if self._order.field is not OrderField.CREATED:
            conditions.append("i.closed_at_ms IS NOT NULL")
        source = f"({branch.text(bindings)}) AS k{self._dialect.joined(' AND '.join(conditions))}"
        return (
            f"SELECT {key} AS key, i.number AS number FROM {source} ORDER BY 1 {direction}, 2 {direction} LIMIT {limit}"
        )

    def _behind(self, key: str, number: str, bindings: Bindings) -> list[str]:
        """The condition for rows behind the last one of the page before."""
        if self._after is None:
            return []
        sign = ">" if self._order.is_ascending else "<"
        last = bindings.bind(self._after.key)
        return [
            f"{key} {sign}= {last} AND ({key} {sign} {last} OR {number} {sign} {bindings.bind(self._after.number)})"
        ]
