"""Mutants of what runs: turns, attempts, leases, replay, and the client."""

from typing import Final

from tools.mutations.mutant import (
    ACTIVITIES,
    ASYNCIO,
    BEFORE_COMMIT,
    CODE,
    COMMITTER,
    ENDINGS,
    ENGINE,
    HOST,
    LEASES,
    LIMITS,
    LIVE,
    LOOP,
    LOST_REPLIES,
    REPLAY_SAFE,
    TIMERS,
    TROUBLE,
    in_python,
)

RUNTIME: Final = (
    in_python(
        "a turn is told before it is committed",
        "G11",
        "runtime/instances",
        "self._committer.submit(built.turn, partial(self._told, live, built, done))",
        "self._committer.submit(built.turn, lambda _: None); self._decided(live, built, done, Applied())",
        BEFORE_COMMIT,
    ),
    in_python(
        "a start is told before it is committed",
        "G11",
        "client/beside",
        "                outcome = await decided",
        "                from holdfast.storage.contract import StartedInstance\n"
        "                outcome = StartedInstance(instance=None, created=True)",
        BEFORE_COMMIT,
    ),
    in_python(
        "a timer fires early",
        "G10",
        "runtime/instances",
        "live.take_messages(self._now_ms)",
        "live.take_messages(lambda: self._now_ms() + 1000)",
        TIMERS,
    ),
    in_python("a due time is rounded down", "G10", "replay/run", "math.ceil(", "math.floor(", TIMERS, LOOP),
    in_python(
        "a timer fires after its wait ended",
        "G10",
        "runtime/live",
        "and not run.waits_for(event.timer)",
        "and event.timer < 0",
        ENDINGS,
    ),
    in_python(
        "messages go before earlier timers",
        "G10",
        "runtime/live",
        "Arrival(at, message.event.time_ms)",
        "Arrival(at, 0)",
        TIMERS,
    ),
    in_python(
        "a stamp goes back", "G10", "runtime/live", "time_ms = max(time_ms, self.stamp_ms)", "time_ms += 0", LIVE
    ),
    in_python(
        "a message is taken in twice",
        "L11",
        "runtime/inbox",
        "and row.row > live.last_row",
        "and row.row > 0",
        "tests/scenarios/test_several_engines.py",
    ),
    in_python(
        "a body that cancels its task cancels another one",
        "A1",
        "runtime/carriers",
        " and not (task and task.cancelling())",
        "",
        "tests/unit/runtime/test_carriers.py",
    ),
    in_python(
        "a body that waits cannot be told to stop",
        "A1",
        "runtime/carriers",
        "        item.task = task\n",
        "",
        "tests/unit/runtime/test_carriers.py",
    ),
    in_python(
        "more bodies run than there are slots",
        "invariant 17",
        "runtime/worker",
        "self.claims.serves(scheduled) and self.runner.reserve()",
        "self.claims.serves(scheduled) and (self.runner.reserve() or True)",
        LIMITS,
    ),
    in_python(
        "types that are not retried are retried",
        "G13",
        "runtime/attempts",
        "tuple(qualified_name(cls) for cls in type(error).__mro__)",
        "()",
        ACTIVITIES,
    ),
    in_python(
        "a worker acts after its lease",
        "W7",
        "runtime/lease",
        "return may_act(self._client, now_ms=self._providers.elapsed_ms())",
        "return True",
        LEASES,
    ),
    in_python(
        "commits are sent after the lease",
        "W7",
        "runtime/committer",
        "if not self._may_act():",
        "if self._may_act is None:",
        LEASES,
    ),
    in_python(
        "a clean stop keeps its work",
        "W10",
        "runtime/worker",
        "await self._janitor.lose(self._lease.key, at_deadline=False, is_clean=True)",
        "self._janitor.lose",
        LEASES,
    ),
    in_python(
        "an unknown outcome is not settled",
        "L13",
        "runtime/committer",
        "if await self._is_on_disk(commit_id):",
        "if commit_id is None:",
        COMMITTER,
    ),
    in_python("what nobody knows is never given up", "W3", "runtime/net", "if lost:", "if lost is None:", LOST_REPLIES),
    in_python(
        "what is on its way is given up",
        "W3",
        "runtime/net",
        "if row in self._unknown and over_at <= self._settled]",
        "if over_at >= 0 and row in self._unknown]",
        LOST_REPLIES,
    ),
    in_python(
        "what happened is forgotten when the store refuses",
        "L13",
        "runtime/committer",
        "call_later(INSIST_SECONDS, self._insist_again, member, done)",
        "call_later(INSIST_SECONDS, repr, member)",
        TROUBLE,
    ),
    in_python(
        "a process of another boot is judged", "W11", "runtime/host", "if not comparable:", "if other is own:", HOST
    ),
    in_python("a reused pid passes for the old process", "W11", "runtime/host", "!= other.started", "== ''", HOST),
    in_python(
        "a silent attempt is never ended",
        "A5",
        "runtime/janitor",
        "for attempt in await self._store.expired_attempts(BATCH):",
        "for attempt in (await self._store.expired_attempts(BATCH))[:0]:",
        LIMITS,
    ),
)

REPLAY: Final = (
    in_python(
        "the first differing step is not looked for",
        "G12",
        "replay/run",
        "elif not produced or not is_same(event, produced[0]):",
        "elif not produced:",
        CODE,
    ),
    in_python(
        "steps beyond the history are not looked for",
        "G12",
        "replay/run",
        "            if produced and not ended_before_it_ran(recorded):",
        "            if produced is None:",
        CODE,
    ),
    in_python(
        "sets of tasks have no order",
        "G10",
        "replay/futures",
        '''or the address while asyncio's constructor runs."""
        try:
            return self.number''',
        '''or the address while asyncio's constructor runs."""
        try:
            return -self.number''',
        LOOP,
        "tests/unit/replay/test_asyncio_tools.py",
    ),
    in_python(
        "a side effect is computed again in a replay",
        "G8",
        "replay/calls",
        "self._side_effects.get(number) if self.replaying else None",
        "None",
        REPLAY_SAFE,
    ),
    in_python("chance differs in a replay", "G8", "replay/calls", "Random(self.seed)", "Random()", REPLAY_SAFE),
    in_python(
        "left-over tasks are not run to their end",
        "G14",
        "replay/run",
        "while self._loop.cancel_left_over(main, deadline=deadline):",
        "while main is None:",
        ASYNCIO,
    ),
    in_python(
        "a call nobody waits for any more goes on",
        "A1",
        "replay/calls",
        "also.abandoned = with_one_more(also.abandoned, number)",
        "pass",
        LIMITS,
    ),
    in_python("the workflow's time goes back", "G10", "replay/loop", "if seconds > self._now:", "if True:", LOOP),
)

CLIENT: Final = (
    in_python(
        "every input has the same hash",
        "G3",
        "client/client",
        "input_hash=input_hash(call.encoded)",
        'input_hash=b""',
        ENGINE,
    ),
    in_python(
        "a conflict passes for a start",
        "G3",
        "client/client",
        "raise InstanceConflict(outcome.reason)",
        "return self.get(instance_id)",
        ENGINE,
    ),
)
