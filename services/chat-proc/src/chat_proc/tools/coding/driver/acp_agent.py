"""Any agent that speaks the Agent Client Protocol over its standard streams."""

import difflib
import json
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from acp import PROTOCOL_VERSION, RequestError, spawn_agent_process, text_block
from acp.client.connection import ClientSideConnection
from acp.schema import (
    AgentMessageChunk,
    AgentPlanUpdate,
    AgentThoughtChunk,
    AllowedOutcome,
    ClientCapabilities,
    ContentToolCallContent,
    DeniedOutcome,
    FileEditToolCallContent,
    PermissionOption,
    RequestPermissionResponse,
    TextContentBlock,
    ToolCallProgress,
    ToolCallStart,
    ToolCallUpdate,
)
from driver.link import Link, Order, stop_with

PREFIX: Final = "acp:"
LINE_BYTES: Final = 16 << 20
"""Of one message of the agent."""
MAX_DIFF_LINES: Final = 400
MAX_DIFFED_CHARS: Final = 200_000
_ENDED: Final = ("completed", "failed")


async def run_acp_agent(order: Order, link: Link, project: Path, home: Path, model_url: str) -> str:
    """See `main.RunAgent`. The command is what follows the prefix of the runtime."""
    command = shlex.split(order.runtime.removeprefix(PREFIX))
    view = _View(link, project)
    env = _build_environment(order, home, model_url)
    transport: dict[str, Any] = {"limit": LINE_BYTES}
    async with spawn_agent_process(
        view, command[0], *command[1:], env=env, cwd=project, transport_kwargs=transport
    ) as (connection, _):
        session = await _open_session(connection, view, order, link, project)
        link.note_session(session)
        text = f"{order.instructions}\n\n{order.task}" if order.instructions and not order.session else order.task
        prompt = connection.prompt(session_id=session, prompt=[text_block(text)])
        answer = await stop_with(link, prompt, lambda: connection.cancel(session_id=session))
    if answer.stop_reason in ("refusal", "max_tokens", "max_turn_requests"):
        link.tell("failed", text=f"The agent stopped: {answer.stop_reason}")
    return view.said


async def _open_session(
    connection: ClientSideConnection, view: "_View", order: Order, link: Link, project: Path
) -> str:
    """The session to continue, if the agent can load it; its history is not shown again."""
    started = await connection.initialize(protocol_version=PROTOCOL_VERSION, client_capabilities=ClientCapabilities())
    can_load = started.agent_capabilities is not None and started.agent_capabilities.load_session
    if order.session and can_load:
        view.is_loading = True
        try:
            await connection.load_session(cwd=str(project), mcp_servers=[], session_id=order.session)
            return order.session
        except RequestError as error:
            link.tell("notice", text=f"The session can't be continued, so a new one begins: {error}")
        finally:
            view.is_loading = False
    return (await connection.new_session(cwd=str(project), mcp_servers=[])).session_id


def _build_environment(order: Order, home: Path, model_url: str) -> dict[str, str]:
    """The variables of both formats, and the files of agents that read none."""
    kept = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    providers = {
        name: {"options": {"baseURL": f"{model_url}/v1", "apiKey": "none"}, "models": {order.model: {}}}
        for name in ("anthropic", "openai")
    }
    opencode = {"provider": providers, "model": f"anthropic/{order.model}", "autoupdate": False, "share": "disabled"}
    return {
        **kept,
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_DATA_HOME": str(home / ".local" / "share"),
        "CLAUDE_CONFIG_DIR": str(home / ".claude"),
        "ANTHROPIC_BASE_URL": model_url,
        "ANTHROPIC_API_KEY": "none",
        "ANTHROPIC_MODEL": order.model,
        "OPENAI_BASE_URL": f"{model_url}/v1",
        "OPENAI_API_KEY": "none",
        "OPENCODE_CONFIG_CONTENT": json.dumps(opencode),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }


class _View:
    """Implements the client of the protocol. The agent reads and writes files itself, so it is offered no files and no
    terminals of the client."""

    def __init__(self, link: Link, project: Path) -> None:
        self._link = link
        self._project = project
        self._begun: set[str] = set()
        self._ended: set[str] = set()
        self._titles: dict[str, str] = {}
        self.is_loading = False
        self.said = ""

    def on_connect(self, conn: object) -> None:
        """Nothing is to be done."""

    async def request_permission(
        self, session_id: str, tool_call: ToolCallUpdate, options: list[PermissionOption], **kwargs: Any
    ) -> RequestPermissionResponse:
        given = tool_call.raw_input if isinstance(tool_call.raw_input, dict) else {}
        may, _ = await self._link.ask(tool_call.kind or "other", tool_call.title or "", given)
        wanted = ("allow_once", "allow_always") if may else ("reject_once", "reject_always")
        for kind in wanted:
            for option in options:
                if option.kind == kind:
                    outcome = AllowedOutcome(outcome="selected", option_id=option.option_id)
                    return RequestPermissionResponse(outcome=outcome)
        return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))

    async def session_update(self, session_id: str, update: object, **kwargs: Any) -> None:
        if self.is_loading:
            return
        match update:
            case AgentMessageChunk(content=TextContentBlock(text=text)):
                self.said += text
                self._link.tell("text", text=text)
            case AgentThoughtChunk(content=TextContentBlock(text=text)):
                self._link.tell("thinking", text=text)
            case AgentPlanUpdate(entries=entries):
                items = [{"title": entry.content[:500], "status": entry.status} for entry in entries]
                self.said = ""
                self._link.tell("plan", items=items)
            case ToolCallStart() | ToolCallProgress():
                await self._show_call(update)
            case _:
                """It says nothing that people see."""

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        raise RequestError.method_not_found(method)

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        """Extensions are not shown."""

    async def _show_call(self, call: ToolCallStart | ToolCallProgress) -> None:
        key, has_ended = call.tool_call_id, call.status in _ENDED
        self.said = ""
        if call.title:
            self._titles[key] = call.title
        # Agents announce a call before its arguments are complete.
        if key not in self._begun and (call.raw_input or has_ended):
            self._begun.add(key)
            given = call.raw_input if isinstance(call.raw_input, dict) else {}
            tool = "".join(char for char in (call.kind or "other") if char.isalnum() or char in "_-") or "other"
            self._link.tell("began", id=key, tool=tool, input={"title": self._titles.get(key, ""), **given}, parent="")
        if has_ended and key not in self._ended:
            self._ended.add(key)
            content = call.content or []
            text = "\n".join(part.content.text for part in content if _is_text(part))
            diff = "\n".join(self._build_diff(part) for part in content if isinstance(part, FileEditToolCallContent))
            self._link.tell("ended_call", id=key, ok=call.status == "completed", text=text, diff=diff)
            await self._link.checkpoint()

    def _build_diff(self, part: FileEditToolCallContent) -> str:
        before, after = part.old_text or "", part.new_text
        if max(len(before), len(after)) > MAX_DIFFED_CHARS:
            return ""
        name = os.path.relpath(part.path, self._project)
        lines: Sequence[str] = [
            *difflib.unified_diff(before.splitlines(), after.splitlines(), f"a/{name}", f"b/{name}", lineterm="")
        ]
        return "\n".join(lines[:MAX_DIFF_LINES])


def _is_text(part: object) -> bool:
    return isinstance(part, ContentToolCallContent) and isinstance(part.content, TextContentBlock)
