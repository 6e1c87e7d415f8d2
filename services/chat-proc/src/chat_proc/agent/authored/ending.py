"""How a turn with a workflow ends: with what the workflow returns, with the agent's last answer if it fails, or by the
person. Whatever the code does, the turn ends once."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

import structlog

from chat_proc.agent.authored.progress import WorkflowProgress, find_answer
from chat_proc.agent.boundaries import TurnBoundaries
from chat_proc.agent.drafting import CUT_CODE, draft_cut_notice, draft_missing_start
from chat_proc.agent.loop import AgentLoop, HeldEnd, LoopResult
from chat_proc.agent.signal_folding import through_last_end
from chat_proc.channels.citations import find_used_sids, index_sources
from chat_proc.turn.leased import NOTHING, CommitContent, LeasedTurn, TurnEnd
from everturn.core.errors import problem
from everturn.core.failpoints import Failpoints
from everturn.core.metrics import AUTHORED_WORKFLOWS_FAILED
from everturn.core.refs import completion_ref, round_ref
from everturn.core.threads import call_sized
from everturn.timeline.blocks import BlockDraft, BlockType, CompletionBody, NoticeBody, WorkflowEndBody
from everturn.timeline.inert import is_blank
from everturn.timeline.progress import ExecuteCalls
from everturn.timeline.turns import CutReason, Outcome

_log = structlog.get_logger(__name__)

MAX_ANSWER_CHARS: Final = 200_000
"""Length limit of a text that a workflow returns: more than any model writes."""
FailureKind = Literal["raised", "timeout", "crashed", "empty", "long"]
_FAILURES: Final[Mapping[FailureKind, str]] = {
    "raised": "It raised an exception.",
    "timeout": "It did not end within the time limit of the turn.",
    "crashed": "Its process ended.",
    "empty": "It gave no answer.",
    "long": "Its answer is too long.",
}
"""For the person; the log has the details."""
_FAULT: Final[CutReason] = "server_error"


class TurnStopped(Exception):
    """The turn stops in this way instead of answering a request."""

    def __init__(self, result: LoopResult) -> None:
        super().__init__(result)
        self.result = result


@dataclass(frozen=True, slots=True)
class WorkflowEnding:
    """Ends one turn."""

    turn: LeasedTurn
    progress: WorkflowProgress
    boundaries: TurnBoundaries
    loop: AgentLoop
    """Goes on alone if a message comes before the end."""
    failpoints: Failpoints
    names: Mapping[str, str]
    """Of the bundle and the turn, for the log."""

    async def finish(self, text: str | None) -> LoopResult:
        """End the turn with what the workflow has returned; None keeps the last answer."""
        if text is not None and is_blank(text):
            return await self.fail("empty", "It returned an empty text.")
        if text is not None and len(text) > MAX_ANSWER_CHARS:
            return await self.fail(
                "long", f"It returned {len(text)} characters; at most {MAX_ANSWER_CHARS} are allowed."
            )
        if (held := self.progress.held) is not None:
            answer = find_answer(held.end.content)
            if text is None or (answer is not None and answer.text == text):
                return await self._close(held, "returned")
            return await self._close(replace(held, end=await self._replace_answer(held.end, text)), "returned")
        record = self.progress.read_record()
        if text is not None and (record.answer is None or record.answer.text != text):
            end = TurnEnd(Outcome.COMPLETED, content=await self._draft_answer(text, NOTHING))
            return await self._close(HeldEnd(end, NOTHING), "returned")
        last = record.results[max(record.results)] if record.results else None
        if last is None or record.answer is None or last.answer is None:
            return await self.fail("empty", last.end.error if last and last.end.error else "It gave no answer.")
        end = TurnEnd(last.end.outcome or Outcome.COMPLETED, cut_reason=last.end.cut_reason)
        return await self._close(HeldEnd(end, NOTHING), "returned")

    async def fail(self, kind: FailureKind, why: str) -> LoopResult:
        """End the turn of a workflow that gives no answer: with the agent's last one, otherwise with a problem."""
        AUTHORED_WORKFLOWS_FAILED.labels(kind).inc()
        _log.warning("The workflow of a bundle failed", **self.names, reason=kind, why=why)
        held = self.progress.held
        if held is None and self.progress.read_record().answer is not None:
            held = HeldEnd(TurnEnd(Outcome.CUT, cut_reason=_FAULT), NOTHING)
        elif held is None:
            detail = f"{_FAILURES[kind]} Try again; if it happens again, contact the operator."
            held = HeldEnd(
                TurnEnd(None, problem("workflow-failed", "The agent's workflow failed", 500, detail)), NOTHING
            )
        elif held.end.error is None and held.end.cut_reason is None:
            notice = CommitContent(tuple(draft_cut_notice(self.progress.build_context(held.end.content), _FAULT)))
            cut = replace(held.end, cut_reason=_FAULT, content=held.end.content.plus(notice))
            if cut.outcome is Outcome.COMPLETED:
                cut = replace(cut, outcome=Outcome.CUT)
            held = replace(held, end=cut)
        return await self._close(held, "failed")

    async def wait_for_person(self) -> None:
        """Return once a signal that ends the turn is pending."""
        while True:
            ring = self.turn.inbox.next_ring
            if through_last_end(await self.turn.inbox.load_unseen()):
                return
            await ring.wait()

    async def try_end_by_person(self) -> LoopResult | None:
        """End a turn that the person has ended; None if they have withdrawn that."""
        turn = self.turn
        if not (ending := through_last_end(await turn.inbox.load_unseen())):
            return None
        if self.progress.held is not None:
            return await self._close(self.progress.held, "returned")
        end = self.boundaries.end_by_signals(turn, ending, turn.progress.sealed_round)
        if isinstance(turn.progress.next_step(), ExecuteCalls):
            return await self.boundaries.close(turn, end)
        return await self.boundaries.try_close(turn, end)

    async def _close(self, held: HeldEnd, state: Literal["returned", "failed"]) -> LoopResult:
        """End the turn, unless a message came first: then the agent alone goes on."""
        turn, content = self.turn, held.end.content
        context = self.progress.build_context(content)
        ref = round_ref(turn.turn_id, context.round, "workflow.end")
        over = context.draft(BlockType.WORKFLOW_END, ref, WorkflowEndBody(state=state))
        end = replace(held.end, content=content.plus(CommitContent((over,))))
        self.failpoints.hit("turn.workflow_ended")
        if isinstance(turn.progress.next_step(), ExecuteCalls):
            return await self.boundaries.close(turn, end)
        closed = await self.boundaries.try_close(turn, end, held.ready)
        return closed if closed is not None else await self.loop.run(turn)

    async def _replace_answer(self, end: TurnEnd, text: str) -> TurnEnd:
        """The end of a turn whose answer is this text instead of that of the agent, which the person has seen already;
        an error of the agent is settled by it."""
        drafts: list[BlockDraft] = []
        for draft in end.content.drafts:
            if isinstance(draft.body, CompletionBody):
                body = draft.body.model_copy(
                    update={"text": text, "shown": None, "sources_used": await self._find_used(text)}
                )
                drafts.append(replace(draft, body=body))
            elif not (isinstance(draft.body, NoticeBody) and draft.body.code == CUT_CODE):
                drafts.append(draft)
        content = replace(end.content, drafts=tuple(drafts), rewind=True)
        if find_answer(content) is None:
            content = await self._draft_answer(text, content)
        is_whole = end.outcome in (None, Outcome.CUT)
        return TurnEnd(Outcome.COMPLETED if is_whole else end.outcome, content=content)

    async def _draft_answer(self, text: str, content: CommitContent) -> CommitContent:
        """The content with this text as an answer, in a round of its own unless the content has one."""
        turn = self.turn
        number = max((draft.round for draft in content.drafts), default=turn.progress.sealed_round + 1)
        context = self.boundaries.build_context(turn, number)
        begun = any(draft.type is BlockType.ROUND_START for draft in content.drafts)
        start = [] if begun else draft_missing_start(context, turn.progress)
        body = CompletionBody(text=text, shown=self._find_shown(text), sources_used=await self._find_used(text))
        ref = completion_ref(turn.turn_id, turn.progress.completions + 1)
        drafts = (*start, context.draft(BlockType.COMPLETION, ref, body))
        return replace(content.plus(CommitContent(drafts)), rewind=True)

    def _find_shown(self, text: str) -> str | None:
        """What clients saw of this text if a model has written it as an answer, with citations replaced."""
        texts = [each for body in self.progress.read_record().channels.values() for each in body.texts]
        return next((each.shown for each in reversed(texts) if each.marker == "answer" and each.raw == text), None)

    async def _find_used(self, text: str) -> tuple[int, ...]:
        sources = index_sources(self.turn.pool.rows)
        return await call_sized(len(text), lambda: find_used_sids(sources, text))
