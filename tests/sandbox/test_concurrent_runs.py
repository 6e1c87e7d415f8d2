"""Two runs of the same execution at once: each is isolated."""

import asyncio
from typing import Any

import pytest

from chat_proc.sandbox.port import RunRequest

pytestmark = pytest.mark.sandbox


async def refuse(call: Any) -> Any:
    raise AssertionError("no tool is offered")


async def test_the_same_execution_may_run_twice_at_once(sandbox: Any) -> None:
    request = RunRequest("request", "turn_1", "import time; time.sleep(0.3); print('done')", ())

    results = await asyncio.gather(*(sandbox.run(request, refuse) for _ in range(4)))

    assert [(result.ok, result.user_out_tail) for result in results] == [(True, "done\n")] * 4
