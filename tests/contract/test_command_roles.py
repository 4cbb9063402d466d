"""The command with a role that may only insert rows: one sentence names the rights that it needs (C13)."""

import pytest
from tests.contract.test_client_roles import Clients, clients
from tests.unit.cli.commands import Command
from tests.unit.cli.conftest import holdfast

__all__ = ["clients", "holdfast"]


@pytest.mark.parametrize("role", ["starter", "executor"])
def test_C13_the_command_names_the_rights_that_it_needs(clients: Clients, holdfast: Command, role: str) -> None:
    store = clients.place.url.replace("//postgres@", f"//{clients.logins[role]}@")
    for words in (["start", "x"], ["activity", "list"], ["show", "x"]):
        done = holdfast(*words, "--store", store)
        assert done.code == 3
        assert "the command needs the rights of a worker, and to list or show those of a reader" in done.err
