"""Small tools that do what a test needs, and count what they did."""

import asyncio
from collections import Counter
from typing import Any

from pydantic import BaseModel, ConfigDict

from chat_proc.catalog.tool import Strategy, ToolCall, ToolOutcome, ToolSpec
from everturn.timeline.sources import SourceDraft
from everturn.turns.model import Effect


class FreeParams(BaseModel):
    """Any JSON at all."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    data: dict[str, Any] = {}


class TextParams(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    text: str = ""


class FindParams(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    urls: tuple[str, ...]


class FindTool:
    """Claims a source for each address; its text is `Text of <address>`."""

    def __init__(self) -> None:
        self.spec = ToolSpec(
            tool_id="demo.find",
            summary="Finds sources.",
            guide="",
            params=FindParams,
            effect=Effect.PURE,
        )
        self.error: Exception | None = None

    async def run(self, call: ToolCall) -> ToolOutcome:
        params = FindParams.model_validate(call.params)
        drafts = [SourceDraft(f"Title of {url}", url, text=f"Text of {url}") for url in params.urls]
        rows = call.context.pool.claim(drafts)
        if self.error is not None:
            raise self.error
        return ToolOutcome("ok", ", ".join(f"[[S:{row.sid}]]" for row in rows))


class DemoTool:
    """Answers with its text. `calls` counts by call id; `effects` what was carried through."""

    def __init__(
        self,
        name: str = "demo.echo",
        *,
        effect: Effect = Effect.PURE,
        cancellable: bool = True,
        timeout_s: float = 60.0,
        takes_code: bool = False,
        strategy: Strategy = "unknown",
        in_programs: bool = False,
        requires_approval: bool = False,
        params: type[BaseModel] = TextParams,
    ) -> None:
        self.spec = ToolSpec(
            tool_id=name,
            summary="Says it again.",
            guide="",
            params=params,
            effect=effect,
            strategy=strategy,
            takes_code=takes_code,
            cancellable=cancellable,
            timeout_s=timeout_s,
            in_programs=in_programs,
            requires_approval=requires_approval,
        )
        self.calls: Counter[str] = Counter()
        self.effects: Counter[str] = Counter()
        self.programs: list[str | None] = []
        self.error: Exception | None = None
        self.started = asyncio.Event()
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def run(self, call: ToolCall) -> ToolOutcome:
        self.calls[call.call_id] += 1
        self.programs.append(call.code)
        self.started.set()
        await self.go_on.wait()
        if self.error is not None:
            raise self.error
        self.effects[call.call_id] += 1
        params = TextParams.model_validate(call.params) if self.spec.params is TextParams else TextParams()
        return ToolOutcome("ok", f"echo: {params.text}")


class DeafTool(DemoTool):
    """Goes on when it is cancelled, until `go_on` is set."""

    async def run(self, call: ToolCall) -> ToolOutcome:
        self.calls[call.call_id] += 1
        self.started.set()
        while not self.go_on.is_set():
            try:
                await self.go_on.wait()
            except asyncio.CancelledError:
                continue
        return ToolOutcome("ok", "too late")
