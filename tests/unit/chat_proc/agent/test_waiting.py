"""A turn that waits for its model says so, and says when the model goes on."""

import asyncio
from typing import cast

from chat_proc.agent.generation import WaitingNotice
from chat_proc.turn.leased import LeasedTurn
from everturn.events.model import AnyEvent, ChatPhase
from everturn.models.port import ModelRetry, TextDelta


class Heard:
    """Keeps what clients get."""

    def __init__(self) -> None:
        self.phases: list[ChatPhase] = []
        self.twice = asyncio.Event()

    def emit(self, data: AnyEvent, round_number: int | None = None) -> None:
        assert isinstance(data, ChatPhase)
        self.phases.append(data)
        if len(self.phases) == 2:
            self.twice.set()


async def test_silence_is_reported_again_and_again_until_the_block_ends() -> None:
    heard = Heard()

    with WaitingNotice(cast("LeasedTurn", heard), 1, first_after_s=0.01, every_s=0.01):
        await asyncio.wait_for(heard.twice.wait(), 10)
    count = len(heard.phases)
    await asyncio.sleep(0.05)

    assert {phase.phase for phase in heard.phases} == {"model_waiting"}
    assert len(heard.phases) == count


async def test_a_repeated_call_is_announced_and_so_is_the_reply_after_it() -> None:
    heard = Heard()

    with WaitingNotice(cast("LeasedTurn", heard), 1) as notice:
        notice.note(TextDelta("a"))
        notice.note(ModelRetry(1.5, attempt=2, max_attempts=12, reason="rate_limited"))
        notice.note(TextDelta("b"))
        notice.note(TextDelta("c"))

    retrying = ChatPhase(phase="model_retrying", retry_in_ms=1500, attempt=2, max_attempts=12, reason="rate_limited")
    assert heard.phases == [retrying, ChatPhase(phase="model_replying")]
