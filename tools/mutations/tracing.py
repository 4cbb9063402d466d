"""Mutants of tracing: spans that are written early, twice or under another id, and contexts that are not carried on."""

from typing import Final

from tools.mutations.mutant import in_python

SCENARIOS: Final = "tests/scenarios/test_tracing.py"
UNIT: Final = "tests/unit/runtime/test_tracing.py"
MODULE: Final = "runtime/tracing"

TRACING: Final = (
    in_python(
        "the span of an execution has another id after a crash",
        "M4",
        "core/trace_context",
        '_derived(_SPAN_BYTES, "run", trace_id, seed, execution)',
        '_derived(_SPAN_BYTES, "run", trace_id, id(object()), execution)',
        SCENARIOS,
    ),
    in_python(
        "attempts of one activity have one id",
        "M5",
        "core/trace_context",
        '"attempt", parent, activity, attempt, dimension)',
        '"attempt", parent, activity, dimension)',
        SCENARIOS,
    ),
    in_python(
        "an attempt does not carry the trace of its execution",
        "M4",
        MODULE,
        "msgspec.structs.replace(each, encoded_options=with_trace(each.encoded_options, text))",
        "msgspec.structs.replace(each, encoded_options=each.encoded_options)",
        SCENARIOS,
    ),
    in_python(
        "a child begins a trace of its own",
        "M4",
        "runtime/turns/turn_builder",
        "trace=scheduled.trace",
        'trace=""',
        SCENARIOS,
    ),
    in_python(
        "the next execution begins a trace of its own",
        "M4",
        "runtime/turns/turn_builder",
        "trace=live.run.trace",
        'trace=""',
        SCENARIOS,
    ),
    in_python(
        "the derived trace of a start is not carried to the next execution",
        "M4",
        MODULE,
        "            live.run.trace = text",
        "            pass",
        SCENARIOS,
    ),
    in_python(
        "an event carries no context of its sender",
        "M4",
        "client/instance_calls",
        "id=unique, trace=context",
        "id=unique",
        SCENARIOS,
    ),
    in_python(
        "the completions of a stale attempt are written",
        "M5",
        MODULE,
        "                    if completion.key not in outcome.stale:",
        "                    if completion.key is not None:",
        UNIT,
    ),
    in_python(
        "a completion that was rejected is written",
        "M5",
        MODULE,
        "            case Completion() if isinstance(outcome, Applied):",
        "            case Completion():",
        UNIT,
    ),
    in_python(
        "a next attempt that was rejected ends the span",
        "M5",
        MODULE,
        "            case OpenNextAttempt() if isinstance(outcome, Applied) and member.attempt is not None:",
        "            case OpenNextAttempt() if member.attempt is not None:",
        UNIT,
    ),
    in_python(
        "the span of a body stays current after its end",
        "M4",
        MODULE,
        "            attach(Context())\n            attempt = getattr",
        "            attempt = getattr",
        UNIT,
    ),
    in_python(
        "the error of a span processor reaches the engine",
        "M4",
        "runtime/spans",
        "        except Exception as error:  # noqa: BLE001 - of code of the user\n            self.failed(error)",
        "        except Exception as error:  # noqa: BLE001 - of code of the user\n            raise",
        SCENARIOS,
    ),
    in_python(
        "spans without a parent are all sampled",
        "M4",
        "runtime/spans",
        "        return SAMPLED if result.decision.is_sampled() else 0",
        "        return SAMPLED",
        SCENARIOS,
    ),
    in_python(
        "an instance that was open before is written as closed",
        "M5",
        MODULE,
        "        case TerminatedInstance() if outcome.was_open:",
        "        case TerminatedInstance():",
        UNIT,
    ),
    in_python(
        "the retry of an execution begins a trace of its own",
        "M4",
        MODULE,
        "if (is_retried or isinstance(output.outcome, ev.ContinuedAsNew)) and",
        "if isinstance(output.outcome, ev.ContinuedAsNew) and",
        SCENARIOS,
    ),
    in_python(
        "an event that is awaited later is written twice",
        "M5",
        MODULE,
        "is_repeated = message.reply_to is not None and message.reply_to not in raised",
        "is_repeated = False",
        SCENARIOS,
    ),
)
