"""The model's request in a round: the rendered timeline, then SOURCES POOL, then ANNOUNCE with the current state."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import structlog

from chat_proc.agent.drafting import RoundContext
from chat_proc.agent.kit import TurnKit
from chat_proc.attachments.media import AttachedMedia
from chat_proc.attachments.reader import TurnMedia
from chat_proc.catalog.tool import PREVIEW_CHARS
from chat_proc.channels.codec import Codec, encode_name
from chat_proc.timeline.arrangement import ShownItem, append_tail, arrange_natively
from chat_proc.timeline.present import Present
from chat_proc.timeline.view import PromptRenderer, TimelineView
from chat_proc.turn.leased import LeasedTurn
from chat_proc.turn.manifests import RequestRecord
from chat_proc.turn.timeline_cache import Rendering
from chat_proc.workspace.description import SHOWN_TURNS, describe_workspace
from chat_proc.workspace.loading import Owner, WorkspaceHistory, complete_own
from chat_proc.workspace.local import WorkspaceFold, describe_limits
from everturn.core.cancellation import run_until
from everturn.core.clock import try_build_local_time
from everturn.core.errors import Unavailable
from everturn.core.ids import TurnId
from everturn.core.metrics import PROMPT_BREAKS
from everturn.core.refs import MAX_SIDS, sources_ref
from everturn.core.threads import call_sized
from everturn.execution.messages import RunLimits
from everturn.files.ports import WorkspaceTurn
from everturn.knowledge.collections import Collection
from everturn.memory.user_memories import UserMemory
from everturn.models.port import MediaData, ModelRequest, PromptMessage
from everturn.models.tokens import CharsPerToken
from everturn.timeline.blocks import Block, BlockType, EventBody, FeedbackBody, SignalBody
from everturn.timeline.inert import escape_line, make_inert
from everturn.timeline.manifests import encode_tools
from everturn.timeline.plans import PlanSnapshot
from everturn.timeline.rendering import MAX_PROMPT_CHARS, render_artifact, render_plan
from everturn.timeline.sources import Source

_log = structlog.get_logger(__name__)

SHOWN_EVENTS = 4
SHOWN_FEEDBACK = 8
SHOWN_MEMORIES = 8
SHOWN_ATTACHMENTS = 3
MAX_LINE_CHARS = 120
MAX_MEMORY_CHARS = 220

SHOWN_RECENT = 15
SHOWN_USED = 15
MAX_TITLE_CHARS = 100
MAX_ADDRESS_CHARS = 100
MAX_SNIPPET_CHARS = 200
_USUAL = CharsPerToken()


@dataclass(frozen=True, slots=True)
class Budget:
    """Usage and limits of the turn. `round` counts from 1; `bonus_rounds` are part of `round_limit`.

    `finalize`: the person has steered, and the remaining rounds serve only to finish the work.
    """

    round: int
    round_limit: int
    elapsed_s: float
    wall_time_s: float
    tokens: int
    token_limit: int
    cost_usd: float
    cost_limit_usd: float | None
    """None if the price of a model is unknown, so that no limit can be enforced."""
    bonus_rounds: int = 0
    finalize: bool = False


@dataclass(frozen=True, slots=True)
class ContextCaps:
    """The estimated context use of the last request, and how much of one text a prompt shows."""

    tokens: int
    token_limit: int
    prompt_chars: int = MAX_PROMPT_CHARS
    result_chars: int = PREVIEW_CHARS


@dataclass(frozen=True, slots=True)
class HotMemory:
    """One row of the person's durable memory; `ref` is the argument for `memory.read`."""

    ref: str
    text: str
    labels: tuple[str, ...] = ()
    pinned: bool = False


@dataclass(frozen=True, slots=True)
class AnnounceState:
    """The content of ANNOUNCE. `code` says how programs run here, or why they can't; `now` is ISO 8601 in UTC.
    `timezone` is the person's, None if the client sent none.

    `run` are the limits of one program, if programs run. `hotset` is None if durable memory is off, and an error text
    if it is on but can't be read. `workspace` are the lines of that section, `limits` says what a turn may write; both
    are safe in a prompt. `notices` say which parts of the timeline are shown shortened. `away` are the aliases of MCP
    servers whose tools are missing.
    """

    turn_id: TurnId
    budget: Budget
    code: str
    now: str
    timezone: str | None = None
    caps: ContextCaps | None = None
    run: RunLimits | None = None
    plans: tuple[PlanSnapshot, ...] = ()
    events: tuple[Block, ...] = ()
    hotset: tuple[HotMemory, ...] | str | None = None
    collections: tuple[Collection, ...] | str = ()
    workspace: tuple[str, ...] = ()
    limits: str = ""
    notices: tuple[str, ...] = ()
    away: tuple[str, ...] = ()
    feedback: tuple[FeedbackBody, ...] = ()


def arrange_request(
    renderer: PromptRenderer, codec: Codec, tail: tuple[str, str], media: Mapping[str, MediaData]
) -> tuple[tuple[PromptMessage, ...], tuple[ShownItem, ...]]:
    """The messages of a request in the form of its codec, and what they show of the timeline. `media` are the loaded
    images and PDFs by sha256."""
    if codec.name != "native":
        messages = renderer.render(tail, media)
        return messages, tuple(renderer.rendered)
    renderer.attach(media)
    points = renderer.cache_points.indexes
    arranged = arrange_natively(renderer.rendered, renderer.view.turn_at, encode_name, cache_at=points)
    return (renderer.system, *append_tail(arranged.messages, tail)), arranged.shown


class WorkspaceSection:
    """Without a history it describes this turn only."""

    def __init__(self, history: WorkspaceHistory | None, turn: LeasedTurn) -> None:
        self._history = history
        self._turn = turn
        self._turns: Sequence[WorkspaceTurn] | None = None if turn.had_files else ()
        self._fold = WorkspaceFold(turn.turn_id)
        self._folded = 0
        """The number of blocks in the fold."""
        self._lines: tuple[str, ...] | None = None
        """The lines for these blocks, if they could be loaded."""

    async def load_lines(self) -> tuple[str, ...]:
        """Load the current lines. If the rows can't be read, the lines say so, and the turn continues."""
        if new_blocks := self._turn.blocks[self._folded :]:
            self._fold.extend(new_blocks)
            self._folded += len(new_blocks)
            self._lines = None
        if self._lines is None:
            try:
                self._lines = await self._load_lines()
            except Unavailable as error:
                _log.warning("Could not load the history of the workspace", error=str(error))
                return describe_workspace(self._fold.workspace, None)
        return self._lines

    async def _load_lines(self) -> tuple[str, ...]:
        turn = self._turn
        if self._history is None:
            return describe_workspace(self._fold.workspace, ())
        owner = Owner(turn.lease.principal, turn.lease.conversation_id)
        workspace = await complete_own(self._history, owner, self._fold)
        if self._turns is None:
            self._turns = await self._history.load_turns(owner.principal, owner.conversation_id, limit=SHOWN_TURNS + 1)
        return describe_workspace(workspace, self._turns)


class TurnPrompts:
    """Builds the requests of one turn. Blocks rendered before, also in an earlier turn, are rendered again only after a
    break or for another kit. Used by the loop's task only."""

    def __init__(self, kit: TurnKit, turn: LeasedTurn, media: TurnMedia) -> None:
        self._kit = kit
        self._traits = kit.traits
        self._turn = turn
        self._media = media
        self._wanted: tuple[int, tuple[AttachedMedia, ...]] = (-1, ())
        """The round and its files for which `media` was loaded last."""
        self.codec = kit.codec_of(turn.progress)
        """The codec of the last request."""
        self._rendering = self._open_rendering()
        self._tools_chars = len(encode_tools(self.codec.tools))
        self._workspace = WorkspaceSection(kit.history, turn)
        self._tail: tuple[str, str] = ("", "")
        self._tail_of: tuple[RoundContext, int] | None = None
        """The round and the number of blocks for which the tail was built last."""
        self._hotset: tuple[HotMemory, ...] | str | None = None
        self._collections: tuple[Collection, ...] | str | None = None

    @property
    def _renderer(self) -> PromptRenderer:
        return self._rendering.renderer

    @property
    def view(self) -> TimelineView:
        """What the model sees, as of the last `measure` or request."""
        return self._renderer.view

    @property
    def ratio(self) -> CharsPerToken:
        """The learned ratio of the deciding model."""
        return self._kit.ratios.of(self._traits.ledger_name)

    async def measure(self, context: RoundContext) -> int:
        """Estimated tokens of the whole request of an ordinary round."""
        tail = await self._prepare(context)
        return self._renderer.tokens(self.ratio, tail) + self.ratio.tokens_for(self._tools_chars)

    async def build(self, context: RoundContext) -> ModelRequest:
        """The request of an ordinary round."""
        limits = self._kit.limits
        cap = limits.finalize_output_tokens if context.finalize else limits.max_output_tokens
        return await self._request(context, max_tokens=min(cap, limits.max_output_tokens))

    async def build_closing(self, context: RoundContext, cap: str) -> ModelRequest:
        """The request of the closing call; `cap` names the reached limit in words."""
        is_step = bool(self._turn.step_id)
        words = {
            "{part}": "This step" if is_step else "The turn",
            "{cap}": cap,
            "{more}": " and what is not" if is_step else ", what is not, and what the user can do next",
        }
        order = "\n" + self.codec.closing_prompt
        for name, text in words.items():
            order = order.replace(name, text)
        return await self._request(context, order, max_tokens=self._kit.limits.max_output_tokens)

    async def _request(self, context: RoundContext, order: str = "", *, max_tokens: int) -> ModelRequest:
        """`order` is appended at the end."""
        pool, announce = await self._prepare(context)
        messages, shown = arrange_request(self._renderer, self.codec, (pool, announce + order), self._media.loaded)
        request = ModelRequest(messages, max_tokens, self.codec.tools)
        if context.round > 0:
            self._turn.manifests.keep(self._record(request, shown, context))
        return request

    async def _prepare(self, context: RoundContext) -> tuple[str, str]:
        """Build SOURCES POOL and ANNOUNCE, and load everything that the timeline before them needs.

        A round measures its request before it builds it: the second time, nothing is left to do unless a summary was
        appended.
        """
        now = context, len(self._turn.shown)
        if self._tail_of != now:
            self._tail = await self._prepare_tail(context)
            self._tail_of = now
        return self._tail

    async def _prepare_tail(self, context: RoundContext) -> tuple[str, str]:
        turn = self._turn
        if (codec := self._kit.codec_of(turn.progress)) is not self.codec:
            self.codec, self._rendering = codec, self._open_rendering()
            self._tools_chars = len(encode_tools(codec.tools))
        # First the state before this turn, so that this turn's changes to it count as prompt breaks.
        await self._render_up_to(turn.shown_start)
        await self._render_up_to(len(turn.shown))
        wanted = context.round, self._renderer.wanted_media
        if wanted != self._wanted:
            # Once in a round: the wait for files that can't be loaded now is not repeated when the request is built.
            self._wanted = wanted
            loading = self._media.load(wanted[1])
            # A cancel or a steer ends the wait: the model call that follows sees it too.
            await (run_until(turn.inbox.wait_for_control(), loading) if wanted[1] else loading)
        self._renderer.attach(self._media.loaded)
        if self._kit.hotset is not None and self._hotset is None:
            self._hotset = _show_hotset(await self._kit.hotset.load_hotset(turn.lease.principal))
        # Together, because both ask the database once in a turn.
        workspace, self._collections = await asyncio.gather(self._workspace.load_lines(), self._load_collections())
        return build_source_pool(turn.pool.rows), self._announce(context, workspace)

    async def _load_collections(self) -> tuple[Collection, ...] | str:
        if self._collections is not None or self._kit.collections is None:
            return self._collections or ()
        return await self._kit.collections.load_list(self._turn.lease.principal)

    def _open_rendering(self) -> Rendering:
        """What is rendered already for this codec and model, or an empty rendering."""
        prompt = self.codec.system_prompt
        rendering = self._turn.rendering
        if rendering is None or rendering.renderer.renders_for != (prompt, self._traits):
            rendering = Rendering(PromptRenderer(system_prompt=prompt, traits=self._traits), Present())
        return rendering

    def _record(self, request: ModelRequest, shown: tuple[ShownItem, ...], context: RoundContext) -> RequestRecord:
        model = self._traits.ledger_name
        return RequestRecord(
            request=request,
            items=shown,
            turn_id=context.turn_id,
            round=context.round,
            model=model,
            sent_at=context.now,
            ratio=self._kit.ratios.of(model),
            preamble=self._turn.manifests.keep_preamble(self.codec.system_prompt, request.tools),
        )

    async def _render_up_to(self, end: int) -> None:
        """Add the blocks that are new; many of them in a thread."""
        new_blocks = self._turn.shown[len(self._renderer.view.blocks) : end]
        if not new_blocks:
            return
        self._rendering.present.extend(new_blocks)
        size = sum(len(block.body_json) for block in new_blocks)
        # A rendering that failed halfway must not be cached.
        self._turn.rendering = None
        for each in await call_sized(size, lambda: self._renderer.take(new_blocks)):
            PROMPT_BREAKS.labels(each.reason.value).inc()
        self._turn.rendering = self._rendering

    def _announce(self, context: RoundContext, workspace: tuple[str, ...]) -> str:
        turn, present, visibility = self._turn, self._rendering.present, self._renderer.view.visibility
        return build_announce(
            AnnounceState(
                turn_id=turn.turn_id,
                budget=self._budget(context),
                caps=ContextCaps(self._renderer.tokens(self.ratio), self._kit.context.max_tokens),
                code=self._kit.code,
                run=self._kit.run,
                now=context.now,
                timezone=turn.time_zone,
                plans=present.open_plans,
                events=tuple(present.events),
                hotset=self._hotset,
                collections=self._collections or (),
                workspace=workspace,
                limits=describe_limits(),
                notices=visibility.notices(turn.turn_id),
                away=self._kit.away,
                feedback=tuple(present.feedback),
            )
        )

    def _budget(self, context: RoundContext) -> Budget:
        turn, limits = self._turn, self._kit.limits
        spent, round_limit = turn.spent, context.limit - context.others
        return Budget(
            round=context.round - context.others,
            round_limit=round_limit,
            bonus_rounds=0 if context.finalize else max(0, round_limit - limits.rounds),
            finalize=context.finalize,
            elapsed_s=spent.leased_s,
            wall_time_s=limits.wall_time_s,
            tokens=spent.usage.input_tokens + spent.usage.output_tokens,
            token_limit=limits.tokens,
            cost_usd=spent.usage.cost_usd,
            cost_limit_usd=limits.cost_usd if spent.usage.cost_known and self._kit.has_prices else None,
        )


def _show_hotset(memories: tuple[UserMemory, ...] | str) -> tuple[HotMemory, ...] | str:
    if isinstance(memories, str):
        return memories
    return tuple(HotMemory(memory.id, memory.text, memory.labels, memory.pinned) for memory in memories)


def build_announce(state: AnnounceState) -> str:
    """Build the text, with sections in a fixed order. It ends with a line break."""
    budget = state.budget
    sections = [
        f"[ANNOUNCE]\nRound {min(budget.round, budget.round_limit)}/{budget.round_limit}",
        _budget_section(budget),
        _section("CONTEXT CAPS", _caps_lines(state.caps)),
        _section(
            "RUNTIME LIMITS", [f"code: {make_inert(state.code)}", *_run_lines(state.run), *_limit_lines(state.limits)]
        ),
        _section("UNAVAILABLE TOOLS", _away_lines(state.away)),
        _section("TEMPORAL CONTEXT", _time_lines(state.now, state.timezone)),
        _section("OPEN PLANS", [make_inert(render_plan(plan)) for plan in state.plans] or ["none"]),
        _section("LIVE TURN EVENTS", [line for block in state.events[-SHOWN_EVENTS:] for line in _event_lines(block)]),
        _section("USER MEMORY HOTSET", _memory_lines(state.hotset)),
        _section("COLLECTIONS", _collection_lines(state.collections)),
        _section("WORKSPACE", state.workspace),
        _section("PRUNE NOTICES", [make_inert(notice) for notice in state.notices]),
        _section("NEW FEEDBACK", [_feedback_line(body) for body in state.feedback[-SHOWN_FEEDBACK:]]),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _section(title: str, lines: Sequence[str]) -> str:
    return "\n".join((f"[{title}]", *lines)) if lines else ""


def _away_lines(aliases: Sequence[str]) -> list[str]:
    if not aliases:
        return []
    return [
        "The tools of these MCP servers are missing in this turn, because the servers can't be used: "
        + ", ".join(f"mcp.{alias}" for alias in aliases),
        "Do what you can without these tools. If something can't be done without them, tell the user that they are "
        "unavailable, and do not make up their results.",
    ]


def _time_lines(now: str, zone: str | None) -> list[str]:
    local = None if zone is None else try_build_local_time(now, zone)
    if zone is None or local is None:
        return ["user timezone: unknown", f"now (UTC): {now}"]
    return [f"user timezone: {escape_line(zone)}", f"now (UTC): {now}", f"now (user): {local}"]


def _budget_section(budget: Budget) -> str:
    left = max(0, budget.round_limit - budget.round)
    bonus = f" ({budget.bonus_rounds} of them for messages that arrived meanwhile)" if budget.bonus_rounds else ""
    steered = "finalize: the user sent a steer; only react.write, react.patch, react.plan and react.hide may be called"
    lines = [steered] if budget.finalize else []
    lines += [
        f"rounds: this one and {left} more of {budget.round_limit}{bonus}"
        if left
        else "rounds: this is the last one; answer now",
        f"time: {_duration(budget.elapsed_s)} of {_duration(budget.wall_time_s)}",
        f"tokens: {budget.tokens} of {budget.token_limit}",
        _money_line(budget),
    ]
    return _section("BUDGET", lines)


def _money_line(budget: Budget) -> str:
    if budget.cost_limit_usd is None:
        return "cost: the price of a model is unknown"
    return f"cost: {budget.cost_usd:.4f} of {budget.cost_limit_usd:.2f} USD"


def _caps_lines(caps: ContextCaps | None) -> list[str]:
    if caps is None:
        return []
    return [
        f"context: about {100 * caps.tokens // caps.token_limit} % of {caps.token_limit} tokens used",
        f"maximum shown: {caps.result_chars} characters of a result, {caps.prompt_chars} of a message; a longer text"
        " names the call that reads the rest",
    ]


def _run_lines(run: RunLimits | None) -> list[str]:
    if run is None:
        return []
    return [
        f"limits of a program: {_format_mib(run.memory_bytes)} of memory, {run.cpu_s} s of processor time, "
        f"files of at most {_format_mib(run.file_bytes)}, at most {run.output_files} output files, "
        f"{_format_mib(run.output_bytes)} in total"
    ]


def _collection_lines(collections: tuple[Collection, ...] | str) -> list[str]:
    if isinstance(collections, str):
        return [f"unavailable: {_one_line(collections)}"]
    return [
        f"- {_one_line(each.title)}: {each.documents} document{'' if each.documents == 1 else 's'}"
        + (f", {each.waiting} not indexed yet" if each.waiting else "")
        for each in collections
    ]


def _memory_lines(hotset: tuple[HotMemory, ...] | str | None) -> list[str]:
    match hotset:
        case None:
            return []
        case str():
            return [f"unavailable: {_one_line(hotset)}"]
        case ():
            return ["none yet"]
        case _:
            return [
                "(durable memories of the user; current messages take precedence)",
                *map(_memory_line, hotset[:SHOWN_MEMORIES]),
            ]


def _memory_line(memory: HotMemory) -> str:
    labels = "".join(f" #{_one_line(label)}" for label in memory.labels[:5])
    pinned = " pinned" if memory.pinned else ""
    return f"- {escape_line(memory.ref)}{pinned}{labels}: {_one_line(memory.text, MAX_MEMORY_CHARS)}"


def _limit_lines(limits: str) -> list[str]:
    return [f"workspace: {limits}"] if limits else []


def _event_lines(block: Block) -> list[str]:
    match block.body:
        case SignalBody() as body:
            silent = "(no text: stop now with what you have)" if block.type is BlockType.USER_STEER else "(no text)"
            what = block.type.value
        case EventBody() as body:
            silent = "(no text)"
            what = f"{block.type.value} {escape_line(body.kind)}{'' if body.reactive else ' (recorded only)'}"
        case _:
            return []
    shown = body.attachments[:SHOWN_ATTACHMENTS]
    left = len(body.attachments) - len(shown)
    return [
        f"- {what} {escape_line(block.ref)}: {_one_line(body.text) or silent}",
        *(f"  {render_artifact(artifact)}" for artifact in shown),
        *([f"  and {left} more files"] if left else []),
    ]


def _feedback_line(body: FeedbackBody) -> str:
    return f"- {body.turn_id} {body.reaction or 'no reaction'} ({body.origin}): {_one_line(body.text) or '(no text)'}"


def _one_line(text: str, cap: int = MAX_LINE_CHARS) -> str:
    line = " ".join(text.split())
    return escape_line(line if len(line) <= cap else line[:cap] + "...")


def _format_mib(size: int) -> str:
    return f"{size // (1024 * 1024)} MiB"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02d}m"
    return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"


def build_source_pool(rows: Sequence[Source]) -> str:
    """The recent and the cited rows, by number, and how many others there are; empty for an empty pool. A request shows
    them after everything that a provider caches."""
    if not rows:
        return ""
    by_sid = sorted(rows, key=lambda row: row.sid)
    used = [row for row in by_sid if row.used][-SHOWN_USED:]
    shown = sorted({row.sid: row for row in (*used, *by_sid[-SHOWN_RECENT:])}.values(), key=lambda row: row.sid)
    listed = {row.sid for row in shown}
    left = [row.sid for row in by_sid if row.sid not in listed]
    last = shown[-1].sid
    lines = [
        f"[SOURCES POOL] {len(by_sid)} sources",
        f'(whole text: react.read paths=["{sources_ref([last])}"], several: "so:sources_pool[1-3,7]")',
        *(line for row in shown for line in _row_lines(row)),
    ]
    if left:
        lines.append(f'({len(left)} more, not listed: react.read paths=["{sources_ref(left[-MAX_SIDS:])}"])')
    return "\n".join(lines) + "\n\n"


def _row_lines(row: Source) -> list[str]:
    title = _cut(" ".join(row.title.split()), MAX_TITLE_CHARS) or "(no title)"
    tokens = f"~{_USUAL.tokens_for(row.text_chars)} tokens" if row.text_chars else "no text"
    quoted = escape_line(title.replace("\\", "\\\\").replace('"', '\\"'))
    head = f'S:{row.sid} "{quoted}" {row.source_type} {_address(row)} {tokens}{" used" if row.used else ""}'
    snippet = "" if row.is_image else _cut(" ".join(row.text.split()), MAX_SNIPPET_CHARS)
    return [head, make_inert(f"  {escape_line(snippet)}")] if snippet else [head]


def _address(row: Source) -> str:
    """The host of a web address, or the whole ref of a file."""
    host = re.split(r"[/?#]", row.url, maxsplit=3)[2] if row.web_url else row.url
    return escape_line(_cut(host, MAX_ADDRESS_CHARS))


def _cut(text: str, cap: int) -> str:
    return text if len(text) <= cap else text[:cap] + "..."
