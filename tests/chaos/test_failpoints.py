"""Workers that die at each border of a turn; every test ends with the history checker."""

import asyncio
import signal
from typing import Any

import pytest

pytestmark = [pytest.mark.chaos, pytest.mark.asyncio(loop_scope="module")]

FAILPOINTS = [
    "turn.claimed:1",
    "turn.opened:1",
    "turn.before_first_token:1",
    "turn.mid_stream:7",
    "turn.before_c1:1",
    "turn.after_c1:1",
    "turn.in_tool:1",
    "turn.before_c2:1",
    "turn.after_c2:1",
    "turn.before_c3:1",
    "turn.after_c3:1",
    "turn.announced:1",
]


@pytest.mark.parametrize("failpoint", FAILPOINTS)
async def test_a_worker_killed_at_a_border_is_taken_over_and_nothing_doubles(stage: Any, failpoint: str) -> None:
    platform = stage.platform
    platform.auto_restart = False
    doomed = platform.restart("worker-1", extra_env={"FAILPOINT": f"{failpoint}:kill"})
    await asyncio.gather(platform.stop_part("worker-2"), doomed)
    created = await stage.clients[0].create_conversation()
    steady = stage.watch(created.conversation_id, ingress=0)
    cut = stage.watch(created.conversation_id, ingress=1, cuts=len(failpoint))

    sent = await stage.clients[0].send_message(created.conversation_id, "script:write please")
    assert await platform.wait_exit("worker-1") == -signal.SIGKILL
    await platform.restart("worker-2")
    turn = await steady.wait_ended(sent.turn_id)

    assert (turn.status, turn.outcome) == ("completed", "completed")
    assert turn.answer == "The note is in outputs/note.md."
    canvas = [text.text for text in turn.texts if text.channel == "canvas"]
    assert canvas == ["# Note\n\nWritten once, shown once.\n"]
    assert [step.status for step in turn.steps] == ["completed"]
    assert [file.filename for file in turn.files] == ["note.md"]
    await stage.check_history(created.conversation_id, steady, cut)
    await stage.close()
