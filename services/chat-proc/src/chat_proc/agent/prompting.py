"""The model's request in a round: the rendered timeline, then SOURCES POOL, then ANNOUNCE with the current state."""

from collections.abc import Sequence
from functools import partial

import structlog

from chat_proc.agent.drafting import RoundContext
from chat_proc.agent.kit import TurnKit
from chat_proc.models.pricing import has_price
from chat_proc.timeline.announce import AnnounceState, Budget, ContextCaps, HotMemory, build_announce, build_source_pool
from chat_proc.timeline.manifest import RequestRecord, build_manifest, build_preamble
from chat_proc.timeline.present import Present
from chat_proc.timeline.render import PromptRenderer
from chat_proc.timeline.view import TimelineView
from chat_proc.turn.leased import LeasedTurn
from chat_proc.workspace.description import SHOWN_TURNS, describe_workspace
from chat_proc.workspace.loading import Owner, WorkspaceHistory, load_own
from chat_proc.workspace.local import describe_limits, fold_workspace
from everturn.core.errors import Unavailable
from everturn.core.metrics import PROMPT_BREAKS
from everturn.files.ports import WorkspaceTurn
from everturn.memory.user_memories import UserMemory
from everturn.models.port import ModelRequest
from everturn.models.tokens import CharsPerToken
from everturn.timeline.manifests import PREAMBLE_ROUND

# The [WORKSPACE] section of one turn: its current files, and the earlier turns that left files, read once.

_log = structlog.get_logger(__name__)


class WorkspaceSection:
    """Without a history it describes this turn only."""

    def __init__(self, history: WorkspaceHistory | None, turn: LeasedTurn) -> None:
        self._history = history
        self._turn = turn
        self._turns: Sequence[WorkspaceTurn] | None = None

    async def load_lines(self) -> tuple[str, ...]:
        """Load the current lines. If the rows can't be read, the lines say so, and the turn continues."""
        turn = self._turn
        folded = fold_workspace(turn.turn_blocks, turn.turn_id)
        if self._history is None:
            return describe_workspace(folded, ())
        owner = Owner(turn.lease.principal, turn.lease.conversation_id)
        try:
            workspace = await load_own(self._history, owner, turn.turn_blocks, turn.turn_id)
            if self._turns is None:
                self._turns = await self._history.load_turns(
                    owner.principal, owner.conversation_id, limit=SHOWN_TURNS + 1
                )
        except Unavailable as error:
            _log.warning("Could not load the history of the workspace", error=str(error))
            return describe_workspace(folded, None)
        return describe_workspace(workspace, self._turns)


class TurnPrompts:
    """The requests of one turn; a block is rendered once."""

    def __init__(self, kit: TurnKit, turn: LeasedTurn) -> None:
        self._kit = kit
        self._turn = turn
        self._renderer = PromptRenderer(system_prompt=kit.system_prompt, traits=kit.traits)
        self._state = Present()
        self._workspace = WorkspaceSection(kit.history, turn)
        self._added = 0
        self._preamble_saved = False
        self._hotset: tuple[HotMemory, ...] | str | None = None
        # Start from the state before this turn, so that this turn's changes to it count as prompt breaks.
        self._render_up_to(len(turn.blocks) - len(turn.turn_blocks))

    @property
    def view(self) -> TimelineView:
        """What the model sees, with all blocks written so far."""
        self._render_up_to(len(self._turn.blocks))
        return self._renderer.view

    @property
    def tokens(self) -> int:
        """Estimated tokens of a request made now, without SOURCES POOL and ANNOUNCE."""
        self._render_up_to(len(self._turn.blocks))
        return self._renderer.tokens(self.ratio)

    @property
    def ratio(self) -> CharsPerToken:
        """The learned ratio of the deciding model."""
        return self._kit.ratios.of(self._kit.traits.name)

    async def measure(self, context: RoundContext) -> int:
        """Estimated tokens of the whole request of an ordinary round."""
        tail = await self._prepare(context)
        self._renderer.attach(self._turn.media)
        return self._renderer.tokens(self.ratio, tail)

    async def build(self, context: RoundContext) -> ModelRequest:
        """The request of an ordinary round."""
        limits = self._kit.limits
        cap = limits.finalize_output_tokens if context.finalize else limits.max_output_tokens
        return await self._request(context, max_tokens=min(cap, limits.max_output_tokens))

    async def build_closing(self, context: RoundContext, cap: str) -> ModelRequest:
        """The request of the closing call; `cap` names the reached limit in words."""
        order = "\n" + self._kit.closing_prompt.replace("{cap}", cap)
        return await self._request(context, order, max_tokens=self._kit.limits.max_output_tokens)

    async def _request(self, context: RoundContext, order: str = "", *, max_tokens: int) -> ModelRequest:
        """`order` is appended at the end."""
        tail = await self._prepare(context, order)
        request = ModelRequest(self._renderer.render(tail, self._turn.media), max_tokens)
        if context.round > 0:
            self._save_preamble()
            self._turn.manifests.keep(context.round, partial(build_manifest, self._record(request, context)))
        return request

    def _save_preamble(self) -> None:
        """Once for each worker that runs the turn: the sent system text was this worker's."""
        if not self._preamble_saved:
            self._preamble_saved = True
            self._turn.manifests.keep(PREAMBLE_ROUND, partial(build_preamble, self._kit.system_prompt))

    async def _prepare(self, context: RoundContext, order: str = "") -> tuple[str, str]:
        """Build SOURCES POOL and ANNOUNCE, and load everything that the timeline before them needs."""
        turn = self._turn
        self._render_up_to(len(turn.blocks))
        await turn.load_media(self._state.wanted_media)
        if self._kit.hotset is not None and self._hotset is None:
            self._hotset = _show_hotset(await self._kit.hotset.load_hotset(turn.lease.principal))
        workspace = await self._workspace.load_lines()
        return build_source_pool(turn.pool.rows), self._announce(context, workspace) + order

    def _record(self, request: ModelRequest, context: RoundContext) -> RequestRecord:
        model = self._kit.traits.name
        return RequestRecord(
            request=request,
            items=tuple(self._renderer.view.items),
            starts=self._renderer.starts,
            turn_id=context.turn_id,
            round=context.round,
            model=model,
            sent_at=context.now,
            ratio=self._kit.ratios.of(model),
        )

    def _render_up_to(self, end: int) -> None:
        new_blocks = self._turn.blocks[self._added : end]
        self._added = end
        self._state.extend(new_blocks)
        for each in self._renderer.take(new_blocks):
            PROMPT_BREAKS.labels(each.reason.value).inc()

    def _announce(self, context: RoundContext, workspace: tuple[str, ...]) -> str:
        turn, present, visibility = self._turn, self._state, self._renderer.view.visibility
        return build_announce(
            AnnounceState(
                turn_id=turn.turn_id,
                budget=self._budget(context),
                caps=ContextCaps(self.tokens, self._kit.context.max_tokens),
                code=self._kit.code,
                run=self._kit.run,
                now=context.now,
                timezone=turn.time_zone,
                plans=present.open_plans,
                events=tuple(present.events),
                hotset=self._hotset,
                workspace=workspace,
                limits=describe_limits(),
                notices=visibility.notices(turn.turn_id),
                feedback=tuple(present.feedback),
            )
        )

    def _budget(self, context: RoundContext) -> Budget:
        turn, limits = self._turn, self._kit.limits
        spent = turn.spent
        return Budget(
            round=context.round,
            round_limit=context.limit,
            bonus_rounds=0 if context.finalize else max(0, context.limit - limits.rounds),
            finalize=context.finalize,
            elapsed_s=spent.leased_s,
            wall_time_s=limits.wall_time_s,
            tokens=spent.usage.input_tokens + spent.usage.output_tokens,
            token_limit=limits.tokens,
            cost_usd=spent.usage.cost_usd,
            cost_limit_usd=limits.cost_usd if spent.usage.cost_known and has_price(self._kit.traits) else None,
        )


def _show_hotset(memories: tuple[UserMemory, ...] | str) -> tuple[HotMemory, ...] | str:
    if isinstance(memories, str):
        return memories
    return tuple(HotMemory(memory.id, memory.text, memory.labels, memory.pinned) for memory in memories)
