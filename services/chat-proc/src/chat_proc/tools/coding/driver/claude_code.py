"""Claude Code, over its SDK."""

import difflib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    PermissionResult,
    PermissionResultAllow,
    PermissionResultDeny,
    ProcessError,
    ResultMessage,
    StreamEvent,
    SystemMessage,
    ToolPermissionContext,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)
from driver.link import Link, Order, stop_with

MAX_DIFF_LINES: Final = 400
MAX_DIFFED_CHARS: Final = 200_000
_WRITES: Final = frozenset({"Edit", "MultiEdit", "Write", "NotebookEdit"})
_PLANS: Final = "TodoWrite"
_DENIED: Final = frozenset({"WebSearch", "WebFetch"})
"""They would run at the provider, or need a network."""


async def run_claude_code(order: Order, link: Link, project: Path, home: Path, model_url: str) -> str:
    """See `main.RunAgent`. A session that can't be continued is begun again."""
    try:
        return await _run(order, link, project, home, model_url, order.session)
    except ProcessError as failure:
        if not order.session or link.session:
            raise
        link.tell("notice", text=f"The session can't be continued, so a new one begins: {failure}")
        return await _run(order, link, project, home, model_url, "")


async def _run(order: Order, link: Link, project: Path, home: Path, model_url: str, session: str) -> str:
    view = _View(link, project)
    async with ClaudeSDKClient(_build_options(order, view, project, home, model_url, session)) as client:
        await client.query(order.task)
        await stop_with(link, _show_all(client, view), client.interrupt)
    return view.result


async def _show_all(client: ClaudeSDKClient, view: "_View") -> None:
    async for message in client.receive_response():
        await view.show(message)


def _build_options(
    order: Order, view: "_View", project: Path, home: Path, model_url: str, session: str
) -> ClaudeAgentOptions:
    env = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    return ClaudeAgentOptions(
        cwd=project,
        model=order.model,
        resume=session or None,
        system_prompt={"type": "preset", "preset": "claude_code", "append": order.instructions},
        setting_sources=["project"],
        strict_mcp_config=True,
        include_partial_messages=True,
        can_use_tool=view.ask,
        disallowed_tools=sorted(_DENIED),
        stderr=view.note_error,
        env={
            **env,
            "HOME": str(home),
            "CLAUDE_CONFIG_DIR": str(home / ".claude"),
            "ANTHROPIC_BASE_URL": model_url,
            "ANTHROPIC_API_KEY": "none",
            "ANTHROPIC_DEFAULT_HAIKU_MODEL": f"{order.model}-small",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_TELEMETRY": "1",
            "DISABLE_ERROR_REPORTING": "1",
        },
    )


class _View:
    """Shows the messages of one session as events."""

    def __init__(self, link: Link, project: Path) -> None:
        self._link = link
        self._project = project
        self._before: dict[str, tuple[Path, str]] = {}
        self._named: dict[str, str] = {}
        self.result = ""

    async def show(self, message: object) -> None:
        match message:
            case SystemMessage(subtype="init", data=data):
                self._link.note_session(str(data.get("session_id", "")))
            case StreamEvent(event={"type": "content_block_delta", "delta": delta}, parent_tool_use_id=None):
                self._show_delta(delta)
            case AssistantMessage(content=content, parent_tool_use_id=parent):
                for block in content:
                    if isinstance(block, ToolUseBlock):
                        self._begin(block, parent)
            case UserMessage(content=list() as content):
                for block in content:
                    if isinstance(block, ToolResultBlock):
                        self._end(block)
                await self._link.checkpoint()
            case ResultMessage() as ended:
                self._link.note_session(ended.session_id)
                self.result = ended.result or ""
                if ended.is_error:
                    self._link.tell("failed", text=self.result or ended.subtype)
            case _:
                """It says nothing that people see."""

    async def ask(self, tool: str, given: dict[str, Any], context: ToolPermissionContext) -> PermissionResult:
        may, why = await self._link.ask(tool, context.title or tool, given)
        return PermissionResultAllow() if may else PermissionResultDeny(message=why)

    def note_error(self, line: str) -> None:
        self._link.tell("log", text=line)

    def _show_delta(self, delta: Mapping[str, Any]) -> None:
        match delta:
            case {"type": "text_delta", "text": text}:
                self._link.tell("text", text=text)
            case {"type": "thinking_delta", "thinking": text}:
                self._link.tell("thinking", text=text)
            case _:
                """A part of a call, which is shown as a whole."""

    def _begin(self, block: ToolUseBlock, parent: str | None) -> None:
        self._named[block.id] = block.name
        if block.name == _PLANS:
            todos = block.input.get("todos", [])
            items = [{"title": str(each.get("content", "")), "status": str(each.get("status", ""))} for each in todos]
            self._link.tell("plan", items=items)
            return
        if block.name in _WRITES and (path := block.input.get("file_path") or block.input.get("notebook_path")):
            place = self._project / str(path)
            self._before[block.id] = place, _read_text(place)
        self._link.tell("began", id=block.id, tool=block.name, input=block.input, parent=parent or "")

    def _end(self, block: ToolResultBlock) -> None:
        if self._named.get(block.tool_use_id) == _PLANS:
            return
        text = _join(block.content)
        diff = "" if block.is_error else self._find_diff(block.tool_use_id)
        self._link.tell("ended_call", id=block.tool_use_id, ok=not block.is_error, text=text, diff=diff)

    def _find_diff(self, call_id: str) -> str:
        place, before = self._before.pop(call_id, (None, ""))
        if place is None:
            return ""
        after = _read_text(place)
        if max(len(before), len(after)) > MAX_DIFFED_CHARS:
            return ""
        name = os.path.relpath(place, self._project)
        lines = difflib.unified_diff(before.splitlines(), after.splitlines(), f"a/{name}", f"b/{name}", lineterm="")
        return "\n".join([*lines][:MAX_DIFF_LINES])


def _read_text(place: Path) -> str:
    try:
        return place.read_text(errors="replace")[: MAX_DIFFED_CHARS + 1]
    except OSError:
        return ""


def _join(content: object) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(str(part.get("text", f"({part.get('type')})")) for part in parts if isinstance(part, dict))
