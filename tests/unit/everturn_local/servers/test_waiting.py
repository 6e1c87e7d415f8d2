"""A server is waited for until it answers, is gone, or had its time."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from everturn_local.servers.waiting import Waited, wait_for_server

LONG_S = 60.0


@dataclass
class Server:
    """Answers, or exits, after so many checks."""

    answers_at: int | None = None
    exits_at: int | None = None
    asked: int = 0

    @property
    def exit_code(self) -> int | None:
        return 1 if self.exits_at is not None and self.asked >= self.exits_at else None

    def answers(self) -> bool:
        self.asked += 1
        return self.asked == self.answers_at


def cases() -> Iterator[tuple[Server, float, Waited, int]]:
    yield Server(answers_at=1), LONG_S, Waited.ANSWERS, 1
    yield Server(answers_at=3), LONG_S, Waited.ANSWERS, 3
    yield Server(exits_at=0), LONG_S, Waited.EXITED, 0
    yield Server(exits_at=2), LONG_S, Waited.EXITED, 2
    yield Server(), -1.0, Waited.SILENT, 1


@pytest.mark.parametrize(("server", "limit_s", "waited", "asked"), list(cases()))
def test_it_polls_until_an_answer_an_exit_or_the_limit(
    server: Server, limit_s: float, waited: Waited, asked: int
) -> None:
    assert wait_for_server(server, server.answers, limit_s=limit_s, poll_s=0.0) is waited
    assert server.asked == asked
