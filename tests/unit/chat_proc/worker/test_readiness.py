"""A worker reports its choices once, and is ready while what turns need answers and it takes them."""

import json
from typing import Any

from chat_proc.worker.readiness import READINESS_KEEP_S, ReadyPage, StartReport
from everturn.core.errors import Unavailable
from everturn.core.readiness import Part
from everturn_testing.core import FixedClock


class Server:
    def __init__(self) -> None:
        self.is_away = False
        self.asked = 0

    async def check(self) -> None:
        self.asked += 1
        if self.is_away:
            raise Unavailable("It is away.")


async def read(page: ReadyPage) -> tuple[int, dict[str, Any]]:
    found = await page.build()
    return found.status, json.loads(found.body)


async def test_all_parts_are_listed_and_a_required_one_decides() -> None:
    needed, other, clock = Server(), Server(), FixedClock()
    page = ReadyPage({"postgres": Part(needed.check), "sandbox": Part(other.check, required=False)}, clock.monotonic)

    ready = await read(page)
    other.is_away = True
    clock.advance(READINESS_KEEP_S + 1)
    degraded = await read(page)
    needed.is_away = True
    clock.advance(READINESS_KEEP_S + 1)
    unready = await read(page)

    assert (ready[0], ready[1]["status"]) == (200, "ready")
    assert (degraded[0], degraded[1]["status"]) == (200, "degraded")
    assert (unready[0], unready[1]["parts"]["postgres"]["ok"]) == (503, False)
    assert "It is away." in unready[1]["parts"]["postgres"]["detail"]


async def test_concurrent_requests_share_one_check() -> None:
    server = Server()
    page = ReadyPage({"postgres": Part(server.check)}, FixedClock().monotonic)

    for _ in range(20):
        await page.build()

    assert server.asked == 1


def test_the_line_says_what_was_chosen_and_why() -> None:
    ready = StartReport("offline", "no key is set", "none", "no launcher", "hashed", "chosen", lexical_only=True)

    line = ready.line()

    assert "\n" not in line
    result = json.loads(line)
    assert result["ready"] is True
    assert (result["model"], result["why"]) == ("offline", "no key is set")
    assert (result["sandbox"], result["embedder"], result["lexical_only"]) == ("none", "hashed", True)
