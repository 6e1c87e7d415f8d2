"""The results of the steps of a workflow, as they are committed."""

from dataclasses import replace
from typing import Literal

from chat_proc.agent.drafting import RoundContext
from chat_proc.turn.leased import NOTHING, CommitContent, LeasedTurn
from everturn.core.failpoints import Failpoints
from everturn.core.refs import round_ref
from everturn.events.model import ChatPlan
from everturn.timeline.blocks import BlockDraft, BlockType, StepResultBody
from everturn.timeline.progress import TurnProgress
from everturn.timeline.workflow import fold_workflow

ResultStatus = Literal["ok", "failed", "cancelled"]


def build_step_ends(turn: LeasedTurn) -> CommitContent:
    """The results of the steps that have begun and do not go on, because of a new message or the end of the turn."""
    running = fold_workflow(turn.turn_blocks).running if turn.progress.lanes else ()
    if not running:
        return NOTHING
    why = "The step was stopped because the user sent new instructions or the turn ended."
    drafts = tuple(_draft(turn, turn.progress.lanes[step_id], step_id, "cancelled", why) for step_id in running)
    return report_plan(turn, CommitContent(drafts=drafts), turn.progress.last_round)


def _draft(turn: LeasedTurn, progress: TurnProgress, step_id: str, status: ResultStatus, text: str) -> BlockDraft:
    """The result of a step, in the last round of its lane."""
    number = progress.last_round
    context = RoundContext(turn.turn_id, number, number, turn.now())
    ref = round_ref(turn.turn_id, number, "step.result")
    return context.draft(BlockType.STEP_RESULT, ref, StepResultBody(step=step_id, status=status, text=text))


async def commit_result(
    lane: LeasedTurn, status: ResultStatus, text: str, failpoints: Failpoints, content: CommitContent = NOTHING
) -> None:
    """Commit the result of a step, after the content."""
    draft = _draft(lane, lane.progress, lane.step_id, status, text)
    whole = content.plus(CommitContent(drafts=(draft,)))
    failpoints.hit("turn.before_step_result")
    await lane.commit_built(lambda: report_plan(lane, whole, draft.round))
    failpoints.hit("turn.after_step_result")


def report_plan(turn: LeasedTurn, content: CommitContent, number: int) -> CommitContent:
    """The same content with the event that shows the plan after it."""
    plan = fold_workflow((*turn.turn_blocks, *content.drafts)).build_snapshot()
    return content if plan is None else replace(content, after=(*content.after, (ChatPlan(plan=plan), number)))
