"""Ends of a turn without an ordinary answer.

When a cap is reached, the closing call lets the model write the answer from what it has so far, without tools. If that
gives none, the last resort is usable text that the model wrote in a wrong form, otherwise what the turn has done. A
model that declines ends the turn with a problem, and so does a repeated failure of our own code before an answer, or
one of the provider before the turn has done anything.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from chat_proc.agent.compaction import RequestRoom
from chat_proc.agent.drafting import (
    GiveAnswer,
    RoundContext,
    draft_answer,
    draft_cut_notice,
    draft_missing_start,
    draft_thinking,
    keep_shown,
    write_round,
)
from chat_proc.agent.generation import Generated, Generator
from chat_proc.agent.prompting import TurnPrompts
from chat_proc.channels.citations import cite_text, find_used_sids, index_sources
from chat_proc.channels.prose import read_usable_text, recover_answer
from chat_proc.turn.leased import CommitContent, LeasedTurn, TurnEnd
from everturn.core.errors import Problem, problem
from everturn.core.refs import completion_ref
from everturn.core.threads import call_sized
from everturn.models.port import ModelFailed
from everturn.timeline.blocks import AttemptBody, Block, BlockType, CompletionBody, RawDecisionBody, ToolResultBody
from everturn.timeline.inert import is_blank
from everturn.timeline.sources import Source
from everturn.timeline.turns import CutReason, Outcome

MAX_LISTED_CALLS = 20
"""Calls that the account lists; the rest are only counted."""
_CALL_STATUS_WORDS = {"ok": "done", "error": "failed", "ambiguous": "outcome unknown", "cancelled": "cancelled"}


class ClosingCall:
    """One model call that ends a turn; any text it returns is the answer."""

    def __init__(self, generator: Generator) -> None:
        self._generator = generator

    async def run(
        self,
        turn: LeasedTurn,
        prompts: TurnPrompts,
        room: RequestRoom,
        context: RoundContext,
        cap: str,
        *,
        has_last_resort: bool = True,
    ) -> TurnEnd | None:
        """`cap` names the reached limit in words. If this call gives no answer, the last resort is the answer, unless
        `has_last_resort` is False. Returns None if a steer or a cancel has ended the call before there was an answer
        or, without a last resort, before the answer was complete: the turn continues, even if that signal is withdrawn
        meanwhile.
        """
        last_resort = await _find_last_resort(turn, cap) if has_last_resort else GiveAnswer("", "")

        async def generate() -> Generated:
            request = await prompts.build_closing(context, cap)
            return await self._generator.generate(turn, request, prompts.codec, context.round, closing=True)

        try:
            generated = await room.run_fitting(context, generate, allow_model=False)
        except ModelFailed as failure:
            return _end_without_call(
                turn, context.at(turn.now()), last_resort, f"The turn reached {cap}. {failure.detail}"
            )
        sources = index_sources(turn.pool.rows)
        answer = await call_sized(len(generated.decision.raw), lambda: _find_answer(generated, sources))
        if generated.stopped and (is_blank(answer.text) or not has_last_resort):
            turn.rewind()
            return None
        if is_blank(answer.text):
            answer = last_resort
            if is_blank(answer.text):
                why = _explain_no_answer(generated.decision.stopped_by, f"The turn reached {cap}.")
                return TurnEnd(None, why, _write(turn, context.at(turn.now()), generated, None))
        if not generated.texts.text("answer"):
            generated.texts.say("answer", 0, answer.shown, marker="answer")
        generated.texts.complete()
        content = _write(turn, context.at(turn.now()), generated, answer)
        return TurnEnd(Outcome.CAPPED, content=content, cut_reason=answer.cut_reason)


def build_crash_end(turn: LeasedTurn, shown: str, limit: int) -> TurnEnd:
    """The end of a turn on which our own code failed repeatedly. An answer that was shown is kept, in the round that
    failed; `limit` is the number of rounds that the turn may have."""
    if is_blank(shown):
        detail = (
            "This is a fault of the server, not of your message. Try again; if it happens again, contact the operator."
        )
        return TurnEnd(
            None, problem("internal-error", "The server failed while it was working on this turn", 500, detail)
        )
    context = RoundContext(turn.turn_id, turn.progress.sealed_round + 1, limit, turn.now())
    content = _draft_completion(turn, context, shown, cut_reason="server_error")
    return TurnEnd(Outcome.CUT, content=content, cut_reason="server_error")


def build_failure_end(turn: LeasedTurn, context: RoundContext, failure: ModelFailed) -> TurnEnd:
    """The end of a turn whose model failed: with what was done, or with a problem if nothing was, so that trying again
    costs nothing."""
    account = build_call_account(turn.own_blocks, "the model stopped answering")
    if not account:
        kind, status = ("model-unavailable", 503) if failure.retryable else ("model-failed", 502)
        return TurnEnd(None, problem(kind, "The model did not answer", status, failure.detail))
    return TurnEnd(Outcome.CUT, content=_draft_completion(turn, context, account), cut_reason="provider_error")


async def _find_last_resort(turn: LeasedTurn, cap: str) -> GiveAnswer:
    """What the model wrote in a wrong form earlier in the turn, otherwise a list of what was done."""
    text = await find_usable_text(turn.own_blocks) or build_call_account(turn.own_blocks, f"I reached {cap}")
    return GiveAnswer(text, text)


def _end_without_call(turn: LeasedTurn, context: RoundContext, answer: GiveAnswer, why: str) -> TurnEnd:
    """The end of a turn whose closing call failed."""
    if is_blank(answer.text):
        return TurnEnd(None, problem("model-unavailable", "The model did not answer", 503, why))
    return TurnEnd(Outcome.CAPPED, content=_draft_completion(turn, context, answer.text))


def _draft_completion(
    turn: LeasedTurn, context: RoundContext, text: str, cut_reason: CutReason | None = None
) -> CommitContent:
    """`text` as the answer, without the reply it came from, and with the start of its round if that is missing."""
    ref = completion_ref(context.turn_id, turn.progress.completions + 1)
    completion = context.draft(BlockType.COMPLETION, ref, CompletionBody(text=text))
    start, notice = draft_missing_start(context, turn.progress), draft_cut_notice(context, cut_reason)
    return CommitContent(drafts=(*start, completion, *notice), rewind=True)


def _write(turn: LeasedTurn, context: RoundContext, generated: Generated, answer: GiveAnswer | None) -> CommitContent:
    drafts = [*draft_missing_start(context, turn.progress), *draft_thinking(context, generated.texts)]
    if answer is not None and answer.text:
        drafts += draft_answer(context, generated.texts, answer, turn.progress.completions + 1)
        drafts += draft_cut_notice(context, answer.cut_reason)
    return write_round(drafts, generated.texts)


def _explain_no_answer(stopped_by: CutReason | None, reached: str) -> Problem:
    """Why there is no answer; `stopped_by` is what ended the closing reply, `reached` states what led to the closing
    call."""
    match stopped_by:
        case "refusal" | "content_filter":
            return build_refusal_problem(stopped_by)
        case "length" | "size_limit":
            title = "The model reached its output limit before it answered"
            advice = "Its closing reply ended at the output limit of one reply. Ask for less in one message."
            return problem("output-limit", title, 503, f"{reached} {advice}")
        case "time_limit":
            title = "The model took too long to answer"
            return problem("no-closing-answer", title, 503, f"{reached} Its closing reply took too long. Try again.")
        case _:
            title = "The model returned no usable answer"
            return problem("no-closing-answer", title, 503, f"{reached} Try again, or ask for less in one message.")


def _find_answer(generated: Generated, sources: Mapping[int, Source]) -> GiveAnswer:
    shown, decision = generated.texts.text("answer"), generated.decision
    if shown:
        return replace(keep_shown(decision, shown), summary=decision.summary)
    text = next((action.final_answer for action in decision.actions if action.final_answer), None)
    cut_reason = None
    if not text:
        text = read_usable_text(decision.outside) or recover_answer(decision.raw)
        cut_reason = decision.stopped_by
    shown, used = cite_text(sources, text), find_used_sids(sources, text)
    return GiveAnswer(text, shown, used_sids=used, summary=decision.summary, cut_reason=cut_reason if text else None)


def build_refusal_problem(reason: Literal["refusal", "content_filter"]) -> Problem:
    """The problem shown to a person if the model or its provider declined to answer."""
    if reason == "refusal":
        return problem("model-refused", "The model declined to answer", 502, "Change the message and try again.")
    title = "The provider's content filter blocked the answer"
    return problem("content-filtered", title, 502, "Change the message and try again.")


async def find_usable_text(turn_blocks: Sequence[Block]) -> str:
    """The last text of the turn that would have been an answer in the right form, or was shown as one."""
    size = sum(len(block.body.text) for block in turn_blocks if isinstance(block.body, RawDecisionBody))
    return await call_sized(size, lambda: _find_usable_text(turn_blocks))


def _find_usable_text(turn_blocks: Sequence[Block]) -> str:
    for block in reversed(turn_blocks):
        match block.body:
            case AttemptBody() as attempt:
                return attempt.shown or attempt.text
            case RawDecisionBody(code=code, text=raw):
                usable = read_usable_text(raw) if code == "no_channel" else recover_answer(raw)
                if usable:
                    return usable
            case _:
                """Holds no answer."""
    return ""


def build_call_account(turn_blocks: Sequence[Block], why: str) -> str:
    """What was done, for the person, in Markdown; empty if nothing was done. `why` says why there is no answer."""
    results = [block.body for block in turn_blocks if isinstance(block.body, ToolResultBody)]
    results = [result for result in results if result.parent is None]
    if not results:
        return ""
    lines = [f"- {result.tool_id}: {_CALL_STATUS_WORDS[result.status]}" for result in results[:MAX_LISTED_CALLS]]
    if len(results) > MAX_LISTED_CALLS:
        lines.append(f"- and {len(results) - MAX_LISTED_CALLS} more steps")
    files = [file.filename for result in results for file in result.artifacts if file.visibility == "external"]
    if files:
        lines.append(f"\nFiles: {', '.join(dict.fromkeys(files))}")
    return f"I could not finish the answer: {why}. This is what I did:\n\n" + "\n".join(lines)
