"""Conversations described by short words: `play_conversation(["turn", "big", "followup"])`."""

from collections.abc import Iterable

from everturn.core import refs
from everturn.core.ids import PlanId, SignalId
from everturn.files.model import Artifact, ArtifactKind
from everturn.timeline.blocks import (
    AnchorBody,
    BlockType,
    EventBody,
    ExitBody,
    HideBody,
    PlanBody,
    RawDecisionBody,
    SummaryBody,
)
from everturn.timeline.plans import PlanMoment, PlanSnapshot, close_plan, mark_steps, new_plan
from everturn.timeline.turns import Outcome, TurnUsage
from everturn_testing.timeline import NOW, TimelineBuilder, build_file

STEPS = (
    "turn", "mute turn", "failed turn", "call", "big", "json", "think", "repair", "followup", "steer", "event",
    "anchor", "file", "plan", "mark", "close plan", "hide",
)  # fmt: skip

_RESULTS = {
    "big": "The long report goes on and on. " * 400,
    "json": '{"rows": [' + ", ".join('{"name": "x", "value": 12345}' for _ in range(300)) + "]}",
}


def play_conversation(steps: Iterable[str]) -> TimelineBuilder:
    """A conversation whose last turn is open at a round boundary. `turn` ends the previous one with a working
    summary."""
    conversation = _Conversation()
    for number, step in enumerate(steps, start=1):
        conversation.take(step, number)
    return conversation.timeline


class _Conversation:
    def __init__(self) -> None:
        self.timeline = TimelineBuilder()
        self._plans: dict[str, PlanSnapshot] = {}
        self._begin(0)

    def take(self, step: str, number: int) -> None:
        match step:
            case "turn" | "mute turn" | "failed turn":
                self._end(step, number)
                self._begin(number)
            case "followup" | "steer":
                self.timeline.say(step, f"sig_{number}", f"Please mind number {number}.")
            case "event":
                body = EventBody(signal_id=SignalId(f"sig_{number}"), kind="form", text=f"Form {number} came.")
                ref = refs.external_ref(self.timeline.turn_id, "form", f"sig_{number}")
                self.timeline.add(BlockType.EXTERNAL_EVENT, ref, body)
            case "hide":
                self._hide()
            case _:
                self._round(step, number)

    def _begin(self, number: int) -> None:
        self.timeline.start_turn(
            f"turn_{number}", f"Request {number}: look into the matter of the year {1900 + number}."
        )

    def _end(self, how: str, number: int) -> None:
        timeline = self.timeline
        timeline.start_round()
        if how != "failed turn":
            if how == "turn":
                text = (
                    f"Goal: matter\nOutcome: done {number}\nKey facts: code {number}\nRetrieval anchors: year {number}"
                )
                ref = refs.working_summary_ref(timeline.turn_id)
                timeline.add(BlockType.WORKING_SUMMARY, ref, SummaryBody(text=text))
            timeline.answer(f"The answer before step {number}.")
        exit_body = ExitBody(outcome=Outcome.COMPLETED, rounds=timeline.round, usage=TurnUsage(), elapsed_ms=1)
        timeline.add(BlockType.EXIT, refs.round_ref(timeline.turn_id, timeline.round, "exit"), exit_body)

    def _round(self, step: str, number: int) -> None:
        timeline = self.timeline
        timeline.start_round()
        timeline.think(f"Thought {number}.")
        if step == "repair":
            ref = refs.round_ref(timeline.turn_id, timeline.round, "raw")
            timeline.add(BlockType.DECISION_RAW, ref, RawDecisionBody(text="nonsense", code="not_json"))
            return
        call_id = f"call_{number}"
        timeline.call(call_id, f"demo.{step.replace(' ', '_')}", {"n": number})
        timeline.result(call_id, "demo.any", _RESULTS.get(step, f"Result {number}."), *self._files(step, number))
        self._record(step, number)

    def _files(self, step: str, number: int) -> list[Artifact]:
        name, turn_id = f"report {number}.md", self.timeline.turn_id
        return [build_file(turn_id, name, b"x", kind=ArtifactKind.OUTPUT)] if step == "file" else []

    def _record(self, step: str, number: int) -> None:
        timeline, moment = self.timeline, PlanMoment(self.timeline.turn_id, NOW)
        match step:
            case "anchor":
                text = f"[P] likes form {number}\n[D] chose way {number}"
                ref = refs.round_ref(timeline.turn_id, timeline.round, "note")
                timeline.add(BlockType.ANCHOR, ref, AnchorBody(text=text, tags=("P", "D")))
            case "plan":
                labels = [f"first of {number}", "second"]
                plan_id = PlanId(f"plan_{number}")
                self._change(new_plan(tuple(self._plans.values()), plan_id=plan_id, labels=labels, moment=moment))
            case "mark":
                marked = [mark_steps(plan, "✓ [1]", moment=moment) for plan in self._plans.values() if plan.current]
                self._change(plan for plan in marked if plan is not None)
            case "close plan":
                current = [plan.plan_id for plan in self._plans.values() if plan.current]
                for plan_id in current:
                    self._change(close_plan(tuple(self._plans.values()), plan_id, moment=moment))
            case _:
                """Leaves nothing but its result."""

    def _change(self, plans: Iterable[PlanSnapshot]) -> None:
        for plan in plans:
            self._plans.pop(plan.plan_id, None)
            self._plans[plan.plan_id] = plan
            self.timeline.add(BlockType.PLAN, plan.snapshot_ref, PlanBody(plan=plan))

    def _hide(self) -> None:
        """Hides the last result of the turn, if there is one."""
        timeline = self.timeline
        for block in reversed(timeline.blocks):
            if block.type is BlockType.TOOL_RESULT and block.turn_id == timeline.turn_id:
                body = HideBody(refs=(block.ref,), through_seq=block.seq, replacement="It was noise.")
                timeline.add(BlockType.HIDE, refs.round_ref(timeline.turn_id, timeline.round, "hide"), body)
                return
