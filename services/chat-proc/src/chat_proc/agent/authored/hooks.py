"""The hooks of a workflow that observe its agent. One that raises or hangs costs its time, and nothing else."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

import structlog

from chat_proc.agent.authored.port import Workflow
from chat_proc.turn.leased import LeasedTurn
from everturn.core.errors import EverturnError
from everturn.core.metrics import AUTHORED_HOOKS_FAILED
from everturn.timeline.blocks import Block, ToolResultBody
from everturn_sdk.protocol import HOOK_S, Hook

_log = structlog.get_logger(__name__)

ANSWER_S: Final = 1.0
MAX_SHOWN_CHARS: Final = 4_000
"""How much of the result of a call a hook gets."""


class TurnHooks:
    """The hooks of one turn."""

    def __init__(self, workflow: Workflow, turn: LeasedTurn) -> None:
        self._workflow = workflow
        self._turn = turn
        self._hooks = set(workflow.hooks)

    async def before_round(self, number: int) -> None:
        await self._call("before_round", {"number": number})

    async def after_tools(self, blocks: Sequence[Block]) -> None:
        """Report the results among these blocks, apart from those of programs."""
        for block in blocks:
            match block.body:
                case ToolResultBody(parent=None) as result:
                    text = result.text[:MAX_SHOWN_CHARS]
                    use = {"tool_id": result.tool_id, "status": result.status, "text": text, "round": block.round}
                    await self._call("after_tool", use)
                case _:
                    """No call of the agent."""

    async def _call(self, hook: Hook, arguments: Mapping[str, Any]) -> None:
        if hook not in self._hooks:
            return
        turn_id, why = self._turn.turn_id, ""
        began_s = asyncio.get_running_loop().time()
        # The process ends a hook at its limit; this is for one that does not answer.
        limit = asyncio.timeout(HOOK_S + ANSWER_S)
        try:
            with self._turn.activity.open_call(f"the hook {hook}"):
                async with limit:
                    await self._workflow.invoke(turn_id, hook, arguments)
        except EverturnError as error:
            why = error.detail
        except TimeoutError:
            if not limit.expired():
                raise
            why = "It did not end."
        if not why:
            return
        if asyncio.get_running_loop().time() - began_s >= HOOK_S:
            self._hooks.discard(hook)
            why = f"{why} It took more than {HOOK_S:g} s, so it is not called again in this turn."
        AUTHORED_HOOKS_FAILED.labels(hook).inc()
        _log.warning(
            "A hook of a workflow failed", bundle_id=self._workflow.bundle_id, turn_id=turn_id, hook=hook, why=why
        )
