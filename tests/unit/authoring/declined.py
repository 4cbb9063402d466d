"""Exceptions in a module of their own, as programs have them. No workflow or activity is here."""


class Declined(Exception):
    """Takes other arguments than it hands on."""

    def __init__(self, code: int, *, card: str) -> None:
        super().__init__(f"declined with {code}")
        self.code, self.card = code, card


class Bank:
    """Has an exception inside."""

    class Closed(Exception):
        """Nested."""
