"""The key-values of instances: changed in the turn that changes them, kept by instance number (G4, G11)."""

from holdfast.storage.contract import InstanceNumber, StateValue
from holdfast.storage.relational.transaction import Transaction


def keep(transaction: Transaction, number: InstanceNumber, changes: tuple[StateValue, ...]) -> None:
    """Part of a guarded turn. A later execution of the instance finds what an earlier one kept."""
    for kept in changes:
        if kept.value is None:
            transaction.do(transaction.sql.forget_kept, number, kept.key)
        else:
            transaction.do(transaction.sql.keep, number, kept.key, kept.value)
