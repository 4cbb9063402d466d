"""Mutants of the metrics: what is counted twice, early or never, and limits of the server."""

from typing import Final

from tools.mutations.mutant import KIT, in_python, in_sql

COUNTED: Final = "tests/unit/runtime/test_metrics.py"
SERVER: Final = "tests/unit/cli/test_metrics_server.py"
SCRAPED: Final = "tests/workers/test_metrics.py"

METRICS: Final = (
    in_python(
        "a turn is counted before its outcome is known",
        "M1",
        "runtime/metrics",
        "            if outcome is APPLIED and type(member) is Turn:\n                continue",
        "            if type(member) is Turn:\n                self.turn_committed(member, member, 0.0)",
        COUNTED,
    ),
    in_python(
        "each execution counts as a start",
        "M1",
        "runtime/metrics",
        "        if turn.turn == 0 and turn.execution == 1 and turn.events:",
        "        if turn.turn == 0 and turn.events:",
        COUNTED,
    ),
    in_python(
        "a completion that was rejected counts",
        "M1",
        "runtime/metrics",
        "        if isinstance(outcome, Applied):\n            self._count_completion",
        "        if outcome is not None:\n            self._count_completion",
        COUNTED,
    ),
    in_python(
        "the stale completions of a rejected turn count",
        "M1",
        "runtime/metrics",
        "                if completion.key not in outcome.stale:",
        "                if completion.key is not None:",
        COUNTED,
    ),
    in_python(
        "a preparation that failed counts as a body",
        "M1",
        "runtime/metrics",
        "isinstance(outcome, Applied) and member.attempt is not None and ended.from_state in BEGUN:",
        "isinstance(outcome, Applied) and member.attempt is not None:",
        COUNTED,
    ),
    in_python(
        "a commit is not counted",
        "M1",
        "runtime/committer",
        "            observer.committed(members, outcomes, took_seconds)",
        "            pass",
        SCRAPED,
    ),
    in_python(
        "a turn is not counted",
        "M1",
        "runtime/turns/turn_taker",
        "            observer.turn_committed(live, turn, built.took_seconds)",
        "            pass",
        SCRAPED,
    ),
    in_python(
        "attempts of lost workers are not named",
        "M1",
        "storage/relational/apply/workers",
        "LOSS_EVENT[attempt.state] is not AttemptEvent.RELEASE",
        "LOSS_EVENT[attempt.state] is AttemptEvent.RELEASE",
        KIT,
    ),
    in_python(
        "a rejected turn does not name stale completions",
        "M1",
        "storage/relational/apply/turns",
        "stale=tuple(completion.key for completion in stale)",
        "stale=()",
        KIT,
    ),
    in_python(
        "ends of external attempts are not named",
        "M1",
        "storage/relational/apply/activity_events",
        "        return (self._attempt,) if has_ended else ()",
        "        return ()",
        SCRAPED,
    ),
    in_sql(
        "closed instances count as open", "M2", "count_open", "owner IS NULL AND closed_at_ms IS NULL", "owner IS NULL"
    ),
    in_python(
        "each scrape reads the store",
        "M2",
        "cli/metrics",
        "            if began_ms < self._next_ms:",
        "            if began_ms < 0:",
        SERVER,
    ),
    in_python(
        "a slow store is read without a pause",
        "M2",
        "cli/metrics",
        "max(CACHED_MS, took_ms * IDLE_PARTS)",
        "CACHED_MS",
        SERVER,
    ),
    in_python(
        "an address without a host is everywhere",
        "M3",
        "cli/metrics",
        "    return ListenAddress(host or LOOPBACK, int(port))",
        '    return ListenAddress(host or "0.0.0.0", int(port))',
        SERVER,
    ),
    in_python(
        "a worker without its lease is ready",
        "M3",
        "cli/metrics",
        "row.state == WorkerState.ACTIVE and row.deadline_ms > now_ms",
        "bool(row.state)",
        SCRAPED,
    ),
    in_python(
        "a worker that drains is ready",
        "M3",
        "cli/metrics",
        "        if gauges.is_leaving:",
        "        if gauges.is_leaving is None:",
        SERVER,
    ),
    in_python(
        "any method is answered",
        "M3",
        "cli/http_responder",
        "        if words[0] not in METHODS:",
        "        if not words[0]:",
        SERVER,
    ),
    in_python(
        "slow clients hold any number of connections",
        "M3",
        "cli/http_responder",
        "        if len(self._connections) >= MOST_CONNECTIONS:",
        "        if len(self._connections) < 0:",
        SERVER,
    ),
    in_python(
        "a request may take for ever",
        "M3",
        "cli/http_responder",
        "            async with asyncio.timeout(HEAD_SECONDS):",
        "            async with asyncio.timeout(None):",
        SERVER,
    ),
)
