"""What a turn says to those who sent updates, as it is stored with the turn (G11)."""

import msgspec

from holdfast.core.answers import Reply
from holdfast.core.events import Payload
from holdfast.core.updates import STATE_OF, UpdateState
from holdfast.payloads.limits import is_inline
from holdfast.storage.contract import LargePayload, UpdateAnswer
from holdfast.storage.large import large_value


def answers_of(answers: dict[str, Reply | None], payloads: list[LargePayload]) -> tuple[UpdateAnswer, ...]:
    """The answers by the ids of their updates; what is large in them goes to `payloads`."""
    return tuple(_answer(update_id, answer, payloads) for update_id, answer in answers.items())


def _answer(update_id: str, answer: Reply | None, payloads: list[LargePayload]) -> UpdateAnswer:
    if answer is None:
        return UpdateAnswer(id=update_id, state=UpdateState.ACCEPTED)
    payload = Payload(answer.data)
    if not is_inline(bytes(answer.data)):
        large = large_value(bytes(answer.data))
        payloads.append(large)
        payload = Payload(reference=large.reference)
    return UpdateAnswer(id=update_id, state=STATE_OF[answer.kind], answer=msgspec.json.encode(payload))
