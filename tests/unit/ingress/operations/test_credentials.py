"""An operator creates, lists and revokes API keys, and revokes users' credentials."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from everturn.accounts.credentials import CredentialAdmin
from everturn.core.errors import Unavailable
from everturn_testing.accounts.credentials import MemoryCredentials
from everturn_testing.core import FixedClock
from ingress.auth.api_keys import try_read_key_text
from ingress.operations.commands import parse_arguments
from ingress.operations.credentials import build_keys_command, build_revoke_user_command

OWNER = ["--tenant", "acme", "--project", "one", "--user", "ann"]


class Desk:
    """The commands over credentials in memory."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.admin = MemoryCredentials(FixedClock())
        self.down = False
        self._capsys = capsys

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[CredentialAdmin]:
        if self.down:
            raise Unavailable("Postgres: gone")
        yield self.admin

    def run(self, *words: str) -> tuple[int, str, str]:
        commands = {"keys": build_keys_command(self.open), "revoke-user": build_revoke_user_command(self.open)}
        command, read = parse_arguments(commands, words, default="keys")
        status = command.run(read)
        said = self._capsys.readouterr()
        return status, said.out, said.err


@pytest.fixture
def desk(capsys: pytest.CaptureFixture[str]) -> Desk:
    return Desk(capsys)


def test_a_made_key_is_shown_once_and_only_its_hash_is_kept(desk: Desk) -> None:
    status, text, note = desk.run("keys", "create", *OWNER, "--role", "paid", "--days", "30", "--label", "nightly job")

    _, listed, _ = desk.run("keys", "list", "--tenant", "acme")

    read = try_read_key_text(text.strip())
    assert status == 0
    assert read is not None
    assert "not shown again" in note
    assert text.strip() not in listed and read.secret_hash not in listed
    assert f"{read.key_id}\tgood\tacme/one\tann\tpaid,registered" in listed
    assert "nightly job" in listed


def test_a_key_without_more_is_registered_and_never_expires(desk: Desk) -> None:
    desk.run("keys", "create", *OWNER)

    assert "\tann\tregistered\t" in desk.run("keys", "list")[1]
    assert "\t-\t-\t" in desk.run("keys", "list")[1]


def test_a_key_is_revoked_once(desk: Desk) -> None:
    key = try_read_key_text(desk.run("keys", "create", *OWNER)[1].strip())
    assert key is not None

    assert desk.run("keys", "revoke", key.key_id)[0] == 0
    assert desk.run("keys", "revoke", key.key_id)[0] == 1
    assert f"{key.key_id}\trevoked" in desk.run("keys", "list")[1]


@pytest.mark.parametrize(
    "words",
    [
        ["--tenant", "a b", "--project", "one", "--user", "ann"],
        ["--tenant", "acme", "--project", "*", "--user", "ann"],
        ["--tenant", "acme", "--project", "one", "--user", "a:b"],
        [*OWNER, "--days", "0"],
        [*OWNER, "--days", "nan"],
        [*OWNER, "--label", "a\nb"],
        [*OWNER, "--label", "x" * 300],
    ],
)
def test_a_key_that_can_not_be_is_refused_with_a_sentence(desk: Desk, words: list[str]) -> None:
    status, text, said = desk.run("keys", "create", *words)

    assert (status, text) == (1, "")
    assert said.startswith("ingress: ")
    assert desk.run("keys", "list")[1].count("\n") == 1


@pytest.mark.parametrize("words", [["keys"], ["keys", "create"], ["keys", "create", *OWNER, "--role", "anonymous"]])
def test_what_can_not_be_read_ends_with_status_2(desk: Desk, words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        desk.run(*words)

    assert ended.value.code == 2


def test_a_person_is_cut_off_everywhere_or_in_one_place(desk: Desk) -> None:
    assert desk.run("revoke-user", "ann")[0] == 0
    assert "bob" in desk.run("revoke-user", "bob", "--tenant", "acme", "--project", "one")[1]
    assert desk.run("revoke-user", "a:b")[0] == 1
    assert desk.run("revoke-user", "ann", "--tenant", "a b")[0] == 1


def test_an_unreachable_database_is_reported(desk: Desk) -> None:
    desk.down = True

    status, _, said = desk.run("keys", "list")

    assert status == 1
    assert "gone" in said
