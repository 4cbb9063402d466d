"""Mutants of activities that are methods, of the context of a worker, and of bodies that are run alone."""

from typing import Final

from tools.mutations.mutant import in_python

METHODS: Final = "tests/scenarios/test_activity_methods.py"
CONTEXT: Final = "tests/scenarios/test_worker_context.py"
ALONE: Final = "tests/scenarios/test_run_activity.py"

OBJECTS: Final = (
    in_python(
        "a method runs in another process",
        "A11",
        "authoring/activity_function",
        "if has_object(function) and (process or options.external is not None):",
        "if False:",
        f"{METHODS}::test_A11_a_method_that_no_object_can_run_is_refused_where_it_is_marked",
    ),
    in_python(
        "a method without an object is registered",
        "A11",
        "authoring/registry",
        "if activity.receiver is NO_OBJECT:",
        "if False:",
        f"{METHODS}::test_A11_what_cannot_be_registered_is_refused_with_what_to_write",
    ),
    in_python(
        "methods of two objects are taken for one",
        "A11",
        "authoring/registry",
        "one.receiver is other.receiver and one.declaration",
        "one.declaration",
        f"{METHODS}::test_A11_what_cannot_be_registered_is_refused_with_what_to_write",
    ),
    in_python(
        "an unmarked override is passed over",
        "A11",
        "authoring/registry",
        "elif name in found:",
        "elif False:",
        f"{METHODS}::test_A11_what_cannot_be_registered_is_refused_with_what_to_write",
    ),
    in_python(
        "the preparation of a method has no object",
        "A11",
        "authoring/activity",
        "prepare = MethodType(prepare.__func__, instance)",
        "pass",
        f"{METHODS}::test_A11_methods_of_an_object_run_on_the_object_that_the_worker_registered",
    ),
    in_python(
        "the context is left before the bodies have ended",
        "A12",
        "runtime/worker",
        "        await self.attempts.stop()\n",
        "        await self.provided.leave()\n        await self.attempts.stop()\n",
        f"{CONTEXT}::test_A12_a_body_that_ends_while_its_worker_stops_has_the_context_to_its_end",
    ),
    in_python(
        "a worker starts without its context",
        "A12",
        "runtime/provided_context",
        "        if task.done():\n            self._task = None",
        "        if False:\n            self._task = None",
        f"{CONTEXT}::test_A12_a_worker_whose_context_fails_does_not_start",
    ),
    in_python(
        "a body without a context gets a marker",
        "A12",
        "authoring/provided",
        "if value is NO_CONTEXT:",
        "if False:",
        f"{CONTEXT}::test_A12_without_a_context_and_outside_of_activities_the_error_says_so",
    ),
    in_python(
        "a thread that is run alone learns of no cancellation",
        "A13",
        "testing/activity_runs",
        "if self.is_asked and not (self._activity.is_async and self._is_in_loop()):",
        "if False:",
        f"{ALONE}::test_A13_cancel_after_counts_heartbeats",
    ),
)
