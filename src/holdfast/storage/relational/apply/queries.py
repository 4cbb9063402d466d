"""Questions: put by a client, taken by one worker, answered once, and gone when nobody waits for them any more."""

import json

from holdfast.core.queries import MAX_QUESTIONS
from holdfast.storage.members.messages import AnswerQuery, AskQuery, ClaimQueries, DeleteQueries, QueryRow
from holdfast.storage.members.outcomes import Applied, ClaimedQueries, Outcome, Rejected
from holdfast.storage.relational.transaction import Transaction


def apply_ask_query(transaction: Transaction, ask: AskQuery) -> Outcome:
    """Put a question, unless there are too many."""
    asked = ask.question
    values = (asked.id, asked.number, asked.name, asked.input, ask.expires_at_ms)
    if transaction.update(transaction.sql.insert_query, *values, MAX_QUESTIONS):
        return Applied()
    return Rejected(reason=f"{MAX_QUESTIONS} questions wait for their answers already, or this one was put before")


def apply_claim_queries(transaction: Transaction, take: ClaimQueries) -> Outcome:
    """Take what is for this worker."""
    workflows = json.dumps(take.workflows)
    rows = transaction.fetch(transaction.sql.claim_queries, take.owner, transaction.now_ms, workflows, take.limit)
    return ClaimedQueries(
        questions=[QueryRow(id=row[0], number=row[1], name=row[2], input=row[3]) for row in rows],
    )


def apply_answer_query(transaction: Transaction, answer: AnswerQuery) -> Outcome:
    """Answer what was taken, if anybody still waits for it."""
    changed = transaction.update(transaction.sql.answer_query, answer.id, answer.owner, answer.answer)
    return Applied() if changed else Rejected(reason=f"nobody waits for the answer to question {answer.id!r}")


def apply_delete_queries(transaction: Transaction, forget: DeleteQueries) -> Outcome:
    """Remove a question, or all that have outlived their time, with the rejections of updates that have."""
    if forget.question is not None:
        return Applied(changed=transaction.update(transaction.sql.delete_query, forget.question))
    gone = transaction.update(transaction.sql.delete_expired_queries, transaction.now_ms)
    return Applied(changed=gone + transaction.update(transaction.sql.delete_expired_updates, transaction.now_ms))
