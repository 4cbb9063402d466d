"""Mutants of attributes and searches (F)."""

from typing import Final

from tools.mutations.mutant import KIT, Mutant, in_python, in_sql

ATTRIBUTES: Final = "tests/scenarios/test_attributes.py"
SEARCH: Final = "tests/scenarios/test_search.py"
FILTERS: Final = "tests/unit/core/test_filters.py"
VALUES: Final = "tests/unit/core/test_attributes.py"
RANDOM: Final = "tests/conformance/test_random_filters.py"
PLANS: Final = "tests/unit/storage/test_search_plans.py"
VERIFY: Final = "tests/scenarios/test_verify.py::test_damage_of_a_row_is_found_and_named"
CONDITIONS: Final = "storage/relational/conditions"
STATEMENTS: Final = "storage/relational/search"

FOUND: Final[tuple[Mutant, ...]] = (
    in_python(
        "a changed attribute is not committed", "F2", "core/run", "self.attributes[name] = value", "pass", ATTRIBUTES
    ),
    in_python(
        "the attributes of a start are not stored",
        "F2",
        "storage/relational/apply/instances",
        "for attribute in start.attributes:",
        "for attribute in ():",
    ),
    in_python(
        "the code does not get the attributes of its start",
        "F2",
        "replay/run",
        "self.attribute_values.restore(started.attributes)",
        "pass",
        ATTRIBUTES,
    ),
    in_python(
        "the next execution begins without attributes",
        "F2",
        "runtime/turns/turn_builder",
        "attributes=dict(live.run.attributes) or None,",
        "attributes=None,",
        ATTRIBUTES,
    ),
    in_python(
        "the code does not get the attributes of a client",
        "F10",
        "replay/state",
        "        for name, value in changes.items():",
        "        for name, value in ():",
        ATTRIBUTES,
    ),
    in_python(
        "an unread assignment of the code replaces that of a client",
        "F10",
        "replay/state",
        "            effects.set_attribute(name, value)",
        "            pass",
        ATTRIBUTES,
    ),
    in_python(
        "a client may set any number of attributes",
        "F10",
        "storage/members/outcomes",
        "len(self.attributes) <= MOST_ATTRIBUTES",
        "True",
    ),
    in_python(
        "a change of attributes is put into the inbox of a closed instance",
        "F10",
        "storage/relational/apply/attributes",
        "if found.state not in INSTANCE_FINAL:",
        "if True:",
    ),
    in_python(
        "a change of attributes starts an instance early",
        "F10",
        "storage/relational/apply/attributes",
        "wakes=found.may_begin(transaction.now_ms)",
        "wakes=True",
    ),
    in_python(
        "a change of attributes is not seen by filters before a turn",
        "F10",
        "storage/relational/apply/attributes",
        "    write_attributes(transaction, number, member.changes)",
        "    pass",
    ),
    in_python(
        "a cursor in another spelling is taken",
        "F7",
        "client/search",
        "if _text_of(decoded) != cursor:",
        "if False:",
        SEARCH,
    ),
    in_python(
        "a turn may set any number of attributes",
        "F1",
        "authoring/attributes",
        "len(attributes.values) >= MOST_ATTRIBUTES",
        "False",
        ATTRIBUTES,
    ),
    in_python(
        "a start may set any number", "F1", "core/attributes", "len(attributes) > MOST_ATTRIBUTES", "False", VALUES
    ),
    in_python("a text may have any length", "F1", "core/attributes", "length > LONGEST_TEXT_BYTES", "False", VALUES),
    in_python("a list may have any length", "F1", "core/attributes", "len(values) > MOST_TEXTS", "False", VALUES),
    in_python("NUL is stored", "F1", "core/attributes", 'if "\\0" in text:', "if False:", VALUES),
    in_python(
        "a time without a zone is stored", "F1", "core/attributes", "value.tzinfo is None or", "False and", VALUES
    ),
    in_python(
        "large integers are compared as floats",
        "F3",
        "core/attributes",
        "number - int(nearest) if isinstance(number, int) else 0",
        "0",
        VALUES,
    ),
    in_sql(
        "an attribute has no place in a list",
        "F7",
        "insert_attribute",
        "(SELECT created_at_ms FROM instances WHERE number = ?1)",
        "0",
    ),
    in_sql("the values before stay", "F2", "delete_attribute", "AND name = ?", "AND name = ? AND 1 = 0"),
    in_python(
        "a filter may have any number of tests", "F5", "core/filters", "self._tests > MOST_TESTS", "False", FILTERS
    ),
    in_python("a filter may be nested without end", "F5", "core/filters", "depth > MOST_DEPTH", "False", FILTERS),
    in_python("a list of values may be endless", "F5", "core/filters", "len(values) == MOST_VALUES", "False", FILTERS),
    in_python("a filter may have any length", "F5", "core/filters", "len(text) > MOST_CHARACTERS", "False", FILTERS),
    in_python("NUL reaches the database", "F5", "core/filters", "_check_characters(text)\n", "\n", FILTERS),
    in_python("between compares classes", "F3", "core/filters", "class_of(low) != class_of(high)", "False", FILTERS),
    in_python(
        "a missing value is unknown, and so is its negation",
        "F4",
        CONDITIONS,
        'return text if field.name in NEVER_NULL else f"COALESCE({text}, FALSE)"',
        "return text",
        RANDOM,
    ),
    in_python(
        "values of all classes differ from a text", "F3", CONDITIONS, "{has(f' AND {comparable}')}", "{has('')}", KIT
    ),
    in_python(
        "a name in a name is awaited", "F4", CONDITIONS, 'for before in ("[", ", ")', 'for before in ("", ", ")', KIT
    ),
    in_python(
        "the rows of the page before come again",
        "F7",
        STATEMENTS,
        "OR {number} {sign} {bindings.bind(self._after.number)})",
        "OR {number} <> {bindings.bind(self._after.number)})",
    ),
    in_python("an instance is found twice", "F7", STATEMENTS, '" UNION ".join', '" UNION ALL ".join', KIT),
    in_python(
        "a filter without an index reads everything",
        "F8",
        "storage/relational/search_reads",
        "search.reads_everything and found is not None",
        "False and found is not None",
        SEARCH,
    ),
    in_python(
        "tests of attributes read all instances with the value",
        "F8",
        CONDITIONS,
        "\"(t.value || '')\"",
        '"t.value"',
        PLANS,
    ),
    in_python(
        "a search may take for ever",
        "F9",
        "storage/sqlite/search",
        "lambda: self._elapsed_ms() > ends_at_ms",
        "lambda: False",
        SEARCH,
    ),
    in_python(
        "a changed cursor is accepted",
        "F7",
        "client/search",
        "not hmac.compare_digest(signature, _signature(data, key))",
        "False",
        SEARCH,
    ),
    in_python(
        "a cursor of another filter is accepted", "F7", "client/search", "or place.digest != digest", "or False", SEARCH
    ),
    in_python(
        "a cursor of another order is accepted",
        "F7",
        "client/search",
        "(place.order, place.is_ascending) != (order.field.value, order.is_ascending)",
        "False",
        SEARCH,
    ),
    in_python("each page has a time of its own", "F7", "client/search", "now_ms = place.now_ms", "pass", SEARCH),
    in_python("a count has no cap", "F9", "client/search", "EXACT if exact else CAP + 1", "EXACT", SEARCH),
    in_python(
        "an order may sort the whole store",
        "F8",
        "client/search",
        "order.field is not OrderField.CREATED and not has_time_range(found)",
        "False",
        SEARCH,
    ),
    in_python(
        "an attribute at another place is sound",
        "F1",
        "audit/attributes",
        "any(row.created_at_ms != created_at_ms for row in rows)",
        "False",
        VERIFY,
    ),
    in_python(
        "a value of another type is sound",
        "F1",
        "audit/attributes",
        "same = store_value(name, read_value(stored)) == stored",
        "same = True",
        VERIFY,
    ),
)
