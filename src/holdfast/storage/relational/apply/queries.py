"""Apply queries: inserted by a client, claimed by one worker, answered once, deleted when read or expired."""

from holdfast.core.queries import MAX_QUERIES
from holdfast.storage.members.messages import AnswerQuery, AskQuery, ClaimQueries, DeleteQueries, QueryRow, asker_of
from holdfast.storage.members.outcomes import Applied, ClaimedQueries, Outcome, Rejected
from holdfast.storage.relational.rows import instance_of
from holdfast.storage.relational.transaction import Transaction
from holdfast.storage.versions import claim_keys


def apply_ask_query(transaction: Transaction, ask: AskQuery) -> Outcome:
    """Insert a query, unless too many wait."""
    query = ask.query
    values = (query.id, query.number, query.name, query.input, ask.expires_at_ms)
    if transaction.update(transaction.sql.insert_query, *values, MAX_QUERIES):
        for row in transaction.fetch(transaction.sql.read_instance, query.number):
            found = instance_of(row)
            transaction.wakeups.queries.add(found.owner or found.workflow)
        return Applied()
    return Rejected(reason=f"{MAX_QUERIES} queries wait for their answers already, or this one was sent before")


def apply_claim_queries(transaction: Transaction, claim: ClaimQueries) -> Outcome:
    keys = claim_keys(claim.workflows, claim.versions)
    rows = transaction.fetch(transaction.sql.claim_queries, claim.owner, transaction.now_ms, keys, claim.limit)
    return ClaimedQueries(queries=[QueryRow(*row) for row in rows])


def apply_answer_query(transaction: Transaction, answer: AnswerQuery) -> Outcome:
    """Answer a claimed query, if its client still waits."""
    changed = transaction.update(transaction.sql.answer_query, answer.id, answer.owner, answer.answer)
    if changed:
        transaction.wakeups.askers.add(asker_of(answer.id))
    return Applied() if changed else Rejected(reason=f"no client waits for the answer to query {answer.id!r}")


def apply_delete_queries(transaction: Transaction, delete: DeleteQueries) -> Outcome:
    """Delete one query, or all queries and rejections of updates that have expired."""
    if delete.query_id is not None:
        return Applied(changed=transaction.update(transaction.sql.delete_query, delete.query_id))
    gone = transaction.update(transaction.sql.delete_expired_queries, transaction.now_ms)
    return Applied(changed=gone + transaction.update(transaction.sql.delete_expired_updates, transaction.now_ms))
