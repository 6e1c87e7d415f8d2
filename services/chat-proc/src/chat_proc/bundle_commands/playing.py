"""Plays the tests of a bundle: each turn through the worker's own runner, then compared with what is expected."""

import asyncio
import hashlib
import logging
import mimetypes
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, Protocol

import structlog
from structlog.testing import capture_logs
from structlog.typing import EventDict

from chat_proc.agent.kit import BundleKit
from chat_proc.bundle_commands.cases import FOLDER, Case, CaseTurn, Reply
from chat_proc.bundle_commands.expectations import PlayedTurn, collect_artifacts, find_failures
from chat_proc.bundles.manifest import Problem
from chat_proc.tools.knowledge.search_knowledge import SEARCH_KNOWLEDGE_TOOL
from chat_proc.worker.runner import TurnRunner
from everturn.core.identity import Principal
from everturn.core.ids import Ids, TurnId
from everturn.files.model import Upload, upload_key
from everturn.files.objects import Objects
from everturn.models.port import ModelRequest, TextPart
from everturn.timeline.blocks import ApprovalRequestBody, Block
from everturn.timeline.inert import escape_line
from everturn.timeline.turns import SignalKind, TurnStatus
from everturn.turns.inbox import Inbox, IncomingMessage, IncomingSignal
from everturn.turns.model import Approval, ApprovalState, Claim
from everturn.turns.ports import Approvals, Leases, Timelines

MAX_APPROVALS: Final = 100
"""Times that one turn may wait for a person."""
MAX_FILE_BYTES: Final = 16 * 1024 * 1024
MAX_LOG_LINES: Final = 20
"""Lines of the bundle's output that are shown for a test that fails, the last ones."""
CODE_TOOL: Final = "exec_tools.execute_code_python"
_SHOWN: Final = frozenset(
    {
        "Output of a bundle",
        "Output of an MCP server",
        "The process of a bundle has ended",
        "The workflow of a bundle failed",
    }
)


class Script(Protocol):
    """The scripted model: what it was asked, the replies that are left, and the requests that found none."""

    requests: list[ModelRequest]
    left: list[Any]
    refused: list[ModelRequest]


@dataclass(frozen=True, slots=True)
class Stage:
    """What one test is played with."""

    kit: BundleKit
    inbox: Inbox
    leases: Leases
    timelines: Timelines
    approvals: Approvals
    objects: Objects
    ids: Ids
    model: Script
    set_replies: Callable[[Sequence[Reply]], None]
    build_runner: Callable[[Claim, float], TurnRunner]
    turn_s: float


@dataclass(frozen=True, slots=True)
class PlayedCase:
    """A test that was played: what was not as expected, and the last lines that the bundle printed."""

    case: Case
    failures: tuple[Problem, ...]
    output: tuple[str, ...]
    seconds: float


def needs_programs(cases: Sequence[Case]) -> bool:
    """Whether a scripted reply runs a program."""
    return any(
        call.tool == CODE_TOOL
        for case in cases
        for turn in case.content.turn
        for reply in turn.model
        for call in reply.calls
    )


@contextmanager
def collect_logs() -> Generator[list[EventDict]]:
    """Collect what the worker would log, in place of writing it."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.INFO))
    try:
        with capture_logs() as lines:
            yield lines
    finally:
        structlog.configure(**before)


def check_calls(case: Case, kit: BundleKit, principal: Principal) -> list[Problem]:
    """The scripted calls of tools that the agent does not have: most likely typing mistakes."""
    offered = kit.for_turn(principal)
    known = {spec.tool_id for spec in offered.catalog.specs}
    known |= {SEARCH_KNOWLEDGE_TOOL} if offered.authored is not None else set()
    problems: list[Problem] = []
    for number, turn in enumerate(case.content.turn):
        missing = [call.tool for reply in turn.model for call in reply.calls if call.tool not in known]
        for tool_id in dict.fromkeys(missing):
            hint = f"The agent has: {', '.join(sorted(known))}"
            server = tool_id.rpartition(".")[0]
            if away := [line for line in kit.list_problems() if line.startswith(f"{server}: ")]:
                hint = f"{away[0].rstrip('.')}. {hint}"
            elif like := get_close_matches(tool_id, sorted(known), n=1, cutoff=0.85):
                hint = f"Perhaps you mean {like[0]}. {hint}"
            elif tool_id.startswith("mcp."):
                hint = f'Write its answer as [mcp_answers."{tool_id}"]. {hint}'
            elif tool_id == CODE_TOOL:
                hint = offered.code[:1].upper() + offered.code[1:]
            problems.append(case.explain(f"The agent has no tool {tool_id!a}. {hint}", "turn", number, "model"))
    return problems


class CasePlayer:
    """Plays one test on its stage."""

    def __init__(self, stage: Stage, case: Case, folder: Path) -> None:
        self._stage = stage
        self._case = case
        self._folder = folder
        self._principal = build_principal(case)
        self._conversation_id = stage.ids.conversation()

    async def play(self) -> list[Problem]:
        """Everything that is not as expected. A turn that does not end as expected is the last one."""
        if problems := check_calls(self._case, self._stage.kit, self._principal):
            return problems
        for number, turn in enumerate(self._case.content.turn):
            try:
                async with asyncio.timeout(self._stage.turn_s):
                    played = await self._play_turn(number, turn)
            except TimeoutError:
                return [self._case.explain(f"the turn did not end within {self._stage.turn_s:g} s", "turn", number)]
            if failures := find_failures(self._case, number, played):
                return failures
        return []

    async def _play_turn(self, number: int, turn: CaseTurn) -> PlayedTurn:
        stage, model = self._stage, self._stage.model
        asked_before, refused_before = len(model.requests), len(model.refused)
        stage.set_replies(turn.model)
        turn_id = await self._send(number, turn)
        unanswered = await self._run(turn_id, turn)
        blocks = await self._load_blocks(turn_id)
        requests = model.requests[asked_before:]
        refused = len(model.refused) - refused_before
        made = collect_artifacts(blocks).items()
        files = {path: await self._load_text(artifact.object_key) for path, artifact in made}
        return PlayedTurn(
            blocks,
            read_prompt(requests[0]) if requests else "",
            files,
            asked=len(requests) - refused,
            unasked=len(model.left),
            refused=refused,
            unanswered=unanswered,
        )

    async def _send(self, number: int, turn: CaseTurn) -> TurnId:
        stage = self._stage
        uploads = [await self._upload(name) for name in turn.attach]
        message = IncomingMessage(
            conversation_id=self._conversation_id,
            create=number == 0,
            text=turn.user,
            uploads=tuple(uploads),
            turn_id=stage.ids.turn(),
            signal_id=stage.ids.signal(),
        )
        await stage.inbox.accept_message(self._principal, message, None)
        return message.turn_id

    async def _upload(self, name: str) -> Upload:
        path = self._folder / FOLDER / name
        data = await asyncio.to_thread(path.read_bytes)
        digest, artifact_id = hashlib.sha256(data).hexdigest(), self._stage.ids.artifact()
        key = upload_key(self._conversation_id, digest, artifact_id)
        await self._stage.objects.save(key, data)
        mime = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        now = await self._stage.inbox.load_now()
        return Upload(artifact_id, path.name, mime, len(data), digest, key, "not scanned", now)

    async def _run(self, turn_id: TurnId, turn: CaseTurn) -> list[str]:
        """Run the turn to its end, and answer its approvals. The tools whose calls wait for an answer that the test
        does not give."""
        stage = self._stage
        for _ in range(MAX_APPROVALS):
            claim = await stage.leases.try_claim(self._conversation_id)
            if claim is not None:
                await stage.build_runner(claim, time.monotonic()).run()
            now = await stage.timelines.load_turn(self._principal, turn_id)
            if now.status is not TurnStatus.WAITING:
                return []
            asked = await stage.approvals.load_of_turn(self._principal, turn_id)
            pending = [approval for approval in asked if approval.state is ApprovalState.PENDING]
            if turn.approve is None:
                return await self._name_tools(turn_id, pending)
            for approval in pending:
                kind = SignalKind.APPROVE if turn.approve else SignalKind.DENY
                signal = IncomingSignal(stage.ids.signal(), kind, "", approval_id=approval.id)
                await stage.inbox.accept_signal(self._principal, self._conversation_id, signal, None)
        return []

    async def _name_tools(self, turn_id: TurnId, pending: Sequence[Approval]) -> list[str]:
        bodies = [block.body for block in await self._load_blocks(turn_id)]
        waiting = {approval.id for approval in pending}
        return [b.tool_id for b in bodies if isinstance(b, ApprovalRequestBody) and b.approval_id in waiting]

    async def _load_blocks(self, turn_id: TurnId) -> list[Block]:
        blocks = await self._stage.timelines.load_recent_blocks(self._principal, self._conversation_id)
        return [block for block in blocks if block.turn_id == turn_id]

    async def _load_text(self, key: str) -> str:
        data = await self._stage.objects.load(key, max_bytes=MAX_FILE_BYTES)
        return data.decode(errors="replace")


def build_principal(case: Case) -> Principal:
    """The person of a test."""
    return Principal("tests", "tests", "person", frozenset(case.content.roles))


def read_prompt(request: ModelRequest) -> str:
    """The system prompt of a request."""
    messages = [message for message in request.messages if message.role == "system"]
    return "\n".join(part.text for message in messages for part in message.parts if isinstance(part, TextPart))


def render_output(lines: Sequence[EventDict]) -> tuple[str, ...]:
    """What an author needs of the log: what the bundle has printed, and why its process or its workflow failed."""
    shown = [str(line.get("text") or f"{line['event']}: {line['why']}") for line in lines if line["event"] in _SHOWN]
    return tuple(escape_line(text) for text in shown[-MAX_LOG_LINES:])
