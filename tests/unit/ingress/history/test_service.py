"""What clients get when a history can't be read."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from everturn import git
from everturn.core.errors import EverturnError, NotFound
from everturn.core.identity import Principal
from everturn.core.ids import ConversationId
from everturn.git import GitFolder, GitLimits, GitUnavailable, RepositoryRefused
from ingress.errors import ProblemError
from ingress.history.service import READERS_OF_PERSON, HistoryService

ANN, CONVERSATION = Principal("acme", "support", "ann"), ConversationId("conv_1")


class Histories:
    """Histories that can't be opened."""

    def __init__(self, error: EverturnError | None = None) -> None:
        self.error = error

    @asynccontextmanager
    async def open(self, principal: Principal, conversation_id: ConversationId) -> AsyncGenerator[None]:
        if self.error is not None:
            raise self.error
        yield

    async def load(self, principal: Principal, conversation_id: ConversationId) -> None:
        """As Conversations, of which all are the caller's own."""


def build(error: EverturnError | None = None) -> HistoryService:
    histories = cast(Any, Histories(error))
    return HistoryService(histories, histories)


async def read(service: HistoryService) -> ProblemError:
    with pytest.raises(ProblemError) as raised:
        async with service.open(ANN, CONVERSATION):
            pass
    return raised.value


async def test_a_server_without_git_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git, "_PATH", str(tmp_path))
    with pytest.raises(GitUnavailable) as missing:
        await GitFolder(tmp_path, GitLimits()).init()

    problem = await read(build(missing.value))

    assert (problem.status_code, problem.answer.detail) == (
        503,
        "Git is not installed on this server, so histories can't be read.",
    )


@pytest.mark.parametrize(
    ("error", "status", "detail"),
    [
        (GitUnavailable("fatal: /tmp/x"), 503, "The history can't be read right now."),
        (RepositoryRefused("It needs more than 1 MiB."), 422, "This history can't be read. It needs more than 1 MiB."),
        (NotFound("x names no commit."), 404, "x names no commit."),
    ],
)
async def test_a_failure_of_git_is_a_problem(error: EverturnError, status: int, detail: str) -> None:
    problem = await read(build(error))

    assert (problem.status_code, problem.answer.detail) == (status, detail)


async def test_one_person_reads_a_few_histories_at_once() -> None:
    service = build()
    readers = [service.open(ANN, CONVERSATION) for _ in range(READERS_OF_PERSON)]
    for reader in readers:
        await reader.__aenter__()

    assert (await read(service)).status_code == 429
    for reader in readers:
        await reader.__aexit__(None, None, None)
    async with service.open(ANN, CONVERSATION):
        pass
