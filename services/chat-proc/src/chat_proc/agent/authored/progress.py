"""How far a workflow is in its turn: what the blocks say, and the last answer of its agent, which is not committed
until it is known whether the workflow goes on."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from chat_proc.agent.authored.context import describe_files
from chat_proc.agent.boundaries import TurnBoundaries
from chat_proc.agent.drafting import RoundContext
from chat_proc.agent.loop import HeldEnd
from chat_proc.turn.leased import NOTHING, CommitContent, LeasedTurn, TurnEnd
from everturn.core.failpoints import Failpoints
from everturn.core.refs import round_ref
from everturn.timeline.authored import WorkflowRecord
from everturn.timeline.blocks import (
    BlockType,
    Body,
    ChannelsBody,
    CompletionBody,
    DurableKind,
    DurableStepBody,
    SegmentEndBody,
)


class WorkflowProgress:
    """Of one turn, as long as this worker runs it. Everything that a workflow does is committed here."""

    def __init__(
        self, turn: LeasedTurn, boundaries: TurnBoundaries, failpoints: Failpoints, takeovers: int = 0
    ) -> None:
        self.takeovers = takeovers
        """Workers that may have died in a model call that has not been recorded yet."""
        self.answered_at_s = asyncio.get_running_loop().time()
        """When this worker got the last answer of the agent, or the turn, by the loop's clock."""
        self._turn = turn
        self._boundaries = boundaries
        self._failpoints = failpoints
        self._record = WorkflowRecord()
        self._taken = 0
        self._held: tuple[int, HeldEnd] | None = None

    @property
    def held(self) -> HeldEnd | None:
        """The agent's answer to the last task, if it is not committed."""
        return None if self._held is None else self._held[1]

    @property
    def held_content(self) -> CommitContent:
        """What is committed with that answer."""
        return NOTHING if self._held is None else self._held[1].end.content

    def hold(self, number: int, held: HeldEnd) -> None:
        """Keep the answer to this task until the workflow goes on, or returns."""
        self._held, self.answered_at_s = (number, held), asyncio.get_running_loop().time()

    def read_record(self) -> WorkflowRecord:
        blocks = self._turn.turn_blocks
        self._record.take(blocks[self._taken :])
        self._taken = len(blocks)
        return self._record

    def find_result(self, number: int) -> dict[str, Any] | None:
        """The result of a task as the workflow gets it; None if the agent has not done it."""
        record = self.read_record()
        if (known := record.results.get(number)) is not None:
            return _build_result(known.end, known.answer, describe_files(self._turn, known.files))
        if self._held is None or self._held[0] != number:
            return None
        end = self._held[1].end
        return _build_result(
            _describe_end(number, end), find_answer(end.content), describe_files(self._turn, record.files.values())
        )

    def find_done(self) -> Mapping[tuple[str, str], DurableStepBody]:
        """What was done once, by kind and key, including what is held together with an answer."""
        bodies = [draft.body for draft in self.held_content.drafts if isinstance(draft.body, DurableStepBody)]
        return {**self.read_record().steps, **{(body.kind, body.key): body for body in bodies}}

    def count_done(self, kind: DurableKind) -> int:
        return sum(each == kind for each, _ in self.find_done())

    def find_emitted(self) -> Mapping[str, ChannelsBody]:
        """The texts of the workflow, by key, including those that are held together with an answer."""
        drafts = [draft.body for draft in self.held_content.drafts if draft.type is BlockType.EMITTED]
        return {**self.read_record().emitted, **{body.key: body for body in drafts if isinstance(body, ChannelsBody)}}

    def build_context(self, content: CommitContent) -> RoundContext:
        """For blocks after this content: they belong to its last round, otherwise to the turn's."""
        number = max((draft.round for draft in content.drafts), default=self._turn.progress.sealed_round)
        return self._boundaries.build_context(self._turn, number)

    async def commit(self, name: str, content: CommitContent) -> None:
        self._failpoints.hit(f"turn.before_{name}")
        await self._turn.commit(content)
        # Workers that died before this had not come to a later model call.
        self.takeovers = 0
        self._failpoints.hit(f"turn.after_{name}")
        self.read_record()

    async def commit_held(self) -> None:
        """Commit the last answer as one of several."""
        if self._held is None:
            return
        number, held = self._held
        context = self.build_context(held.end.content)
        ref = round_ref(self._turn.turn_id, context.round, f"segment.end.{number}")
        draft = context.draft(BlockType.SEGMENT_END, ref, _describe_end(number, held.end))
        # An answer of an open turn has no event of its own.
        await self.commit("segment_end", replace(held.end.content.plus(CommitContent((draft,))), rewind=True))
        self._held = None

    async def add(self, name: str, kind: BlockType, place: str, body: Body, content: CommitContent = NOTHING) -> None:
        """Commit a block with what belongs to it, or hold both together with the answer that is held."""
        context = self.build_context(self.held_content)
        ref = round_ref(self._turn.turn_id, context.round, place)
        content = content.plus(CommitContent((context.draft(kind, ref, body),)))
        if self._held is None:
            await self.commit(name, content)
        else:
            number, held = self._held
            self._held = number, replace(held, end=replace(held.end, content=held.end.content.plus(content)))


def find_answer(content: CommitContent) -> CompletionBody | None:
    return next((draft.body for draft in content.drafts if isinstance(draft.body, CompletionBody)), None)


def _describe_end(number: int, end: TurnEnd) -> SegmentEndBody:
    why = "" if end.error is None else f"{end.error.title}. {end.error.detail or ''}".strip()
    return SegmentEndBody(number=number, outcome=end.outcome, cut_reason=end.cut_reason, error=why)


def _build_result(
    end: SegmentEndBody, answer: CompletionBody | None, files: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """What `everturn_sdk.RunResult` holds."""
    outcome = "failed" if end.outcome is None else end.outcome.value
    return {"text": answer.text if answer else "", "outcome": outcome, "error": end.error, "files": list(files)}
