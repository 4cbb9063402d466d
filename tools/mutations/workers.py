"""Mutants of workers: how they leave, what they let go of, and when others take over."""

from typing import Final

from tools.mutations.mutant import in_python

WORKER: Final = "tests/workers/test_worker.py"
JANITOR: Final = "tests/unit/runtime/test_janitor.py"
ACROSS_HOSTS: Final = "tests/workers/test_harmful.py"
BACKGROUND: Final = "tests/scenarios/test_background.py"
DRAIN: Final = f"{WORKER}::test_W10_what_begins_while_a_drain_does_is_neither_lost_nor_stranded"

STARTING: Final = "tests/workers/test_starting.py"

WORKERS: Final = (
    in_python(
        "a signal before the event loop runs is raised into asyncio",
        "W10",
        "cli/worker",
        "            early.keep()",
        "            pass",
        f"{STARTING}::test_W10_a_signal_is_kept_until_the_event_loop_runs",
    ),
    in_python(
        "a signal that user code swallows while it is imported is forgotten",
        "W10",
        "cli/signals",
        "            self._grace.start()\n        raise",
        "            pass\n        raise",
        f"{STARTING}::test_W10_a_program_that_swallows_the_signal_is_ended_after_two_seconds",
    ),
    in_python(
        "a start that is cancelled leaves its heartbeat to a store that closes",
        "W10",
        "runtime/lease",
        "            await asyncio.to_thread(self._thread.join, LEAVING_SECONDS)  #",
        "            pass  #",
        "tests/unit/runtime/test_lease_keeper.py::"
        "test_W10_a_start_that_is_cancelled_waits_for_its_heartbeat_before_the_store_closes",
    ),
    in_python(
        "a drain leaves first turns behind that are on their way",
        "W10",
        "runtime/worker",
        "        await self.committer.drain()  # first turns",
        "        pass  # first turns",
        DRAIN,
    ),
    in_python(
        "a drain leaves continued executions behind",
        "W10",
        "runtime/worker",
        "        await self.claims.wake_continued(self.instances)",
        "        pass",
        DRAIN,
    ),
    in_python(
        "a drain cuts a claim off",
        "W10",
        "runtime/worker",
        "        await self._claiming.wait()  #",
        "        self._claiming.stop()  #",
        DRAIN,
    ),
    in_python(
        "a worker that drains goes on claiming",
        "W10",
        "runtime/claims",
        "while not self._is_closed:",
        "while True:",
        f"{WORKER}::test_W10_a_worker_that_drains_claims_nothing_lets_go_and_gives_bodies_their_time",
    ),
    in_python(
        "a worker that drains takes first turns",
        "W10",
        "runtime/worker",
        "None if self._is_draining else",
        "None if False else",
        f"{WORKER}::test_W10_a_worker_that_drains_claims_nothing_lets_go_and_gives_bodies_their_time",
    ),
    in_python(
        "a drain goes on without a lease",
        "W7",
        "runtime/worker",
        "self.runner.abandon_all()  # nobody takes",
        "pass  # nobody takes",
        f"{WORKER}::test_W7_a_lease_that_is_lost_ends_a_drain",
    ),
    in_python(
        "a lease that ends between two looks is seen at the next",
        "W6",
        "runtime/janitor",
        "min(longest, left_ms / MILLISECONDS)",
        "longest",
        f"{JANITOR}::test_W6_the_next_round_comes_no_later_than_the_next_lease_ends",
    ),
    in_python(
        "a janitor whose round failed looks again at once",
        "W6",
        "runtime/janitor",
        "= self._next_deadline_ms, None",
        "= self._next_deadline_ms, self._next_deadline_ms",
        f"{JANITOR}::test_W6_the_next_round_comes_no_later_than_the_next_lease_ends",
    ),
    in_python(
        "everything a lost worker had is moved in one commit",
        "W6",
        "runtime/janitor",
        "limit=BATCH,  # of each kind",
        "limit=10**9,",
        f"{JANITOR}::test_W6_batches_are_bounded_and_whoever_comes_meanwhile_is_in_the_very_next_group",
    ),
    in_python(
        "what nobody can explain accuses nobody",
        "G12",
        "runtime/janitor",
        "unexplained=said is None",
        "unexplained=False",
        ACROSS_HOSTS,
    ),
    in_python(
        "a changed key accuses everybody it had",
        "G12",
        "runtime/janitor",
        "if said is None and is_own:",
        "if False:",
        f"{JANITOR}::test_G12_whose_last_words_cannot_be_read_leaves_all_it_had_under_suspicion",
    ),
    in_python(
        "a suspect that takes no turn stays",
        "G12",
        "runtime/claims",
        "instances.let_go(live)",
        "pass",
        ACROSS_HOSTS,
    ),
    in_python(
        "groups that are handed in at once are written at once",
        "C1",
        "storage/sqlite/store",
        "if not self._waiting and (",
        "if (",
        "tests/conformance/test_sqlite.py",
    ),
    in_python(
        "a background task that was cancelled is not started again",
        "W1",
        "background",
        "(error is None and not task.cancelled())",
        "error is None",
        BACKGROUND,
    ),
    in_python(
        "a background task that failed is not started again",
        "W1",
        "background",
        "            self._restart = asyncio",
        "            _ = lambda: asyncio",
        BACKGROUND,
    ),
    in_python(
        "a background thread that failed is not started again",
        "W1",
        "background",
        "            return False\n        return True",
        "        return True",
        BACKGROUND,
    ),
    in_python(
        "members of a commit that was interrupted wait for ever",
        "L13",
        "runtime/committer",
        "                    self._fail_group(error)",
        "                    pass",
        BACKGROUND,
    ),
    in_python(
        "a listener that fails costs members their outcomes",
        "L13",
        "runtime/committer",
        "        except Exception:  # the group is on disk",
        "        except ZeroDivisionError:  # the group is on disk",
        f"{BACKGROUND}::test_every_member_receives_its_outcome_whatever_a_listener_does",
    ),
    in_python(
        "a receiver that fails costs others their outcomes",
        "L13",
        "runtime/committer",
        "            except BaseException as error:  # a receiver",
        "            except ZeroDivisionError as error:  # a receiver",
        f"{BACKGROUND}::test_every_member_receives_its_outcome_whatever_a_listener_does",
    ),
    in_python(
        "a notification that fails raises",
        "G5",
        "runtime/wake",
        "        except OSError as error:\n            if not",
        "        except ZeroDivisionError as error:\n            if not",
        "tests/unit/runtime/test_wake.py::test_a_notification_that_cannot_be_sent_never_raises_and_is_logged_once",
    ),
)
