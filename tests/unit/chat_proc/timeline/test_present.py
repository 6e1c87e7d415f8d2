"""What holds now, folded block by block."""

from chat_proc.timeline.present import Present
from everturn.core.ids import PlanId, SignalId
from everturn.files.model import ArtifactKind
from everturn.timeline.blocks import BlockType, EventBody, FeedbackBody, PlanBody
from everturn.timeline.plans import PlanMoment, new_plan
from everturn_testing.timeline import NOW, TimelineBuilder, build_file

PHOTO = build_file("turn_1", "photo.png", b"png", mime="image/png")
REPORT = build_file("turn_2", "report.pdf", b"pdf", mime="application/pdf")
CHART = build_file("turn_1", "chart.png", b"chart", mime="image/png", kind=ArtifactKind.OUTPUT)


def play() -> TimelineBuilder:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Look", PHOTO)
    timeline.start_round()
    timeline.result("call_1", "exec_tools.execute_code_python", "done", CHART)
    timeline.say("steer", "sig_0", "quick")
    timeline.start_turn("turn_2", "And now?")
    timeline.say("followup", "sig_1", "this too", REPORT)
    return timeline


def fold(timeline: TimelineBuilder) -> Present:
    present = Present()
    present.extend(timeline.blocks)
    return present


def test_signals_events_and_feedback_are_those_of_the_newest_turn() -> None:
    timeline = play()
    event = EventBody(signal_id=SignalId("sig_3"), kind="form", text="sent")
    timeline.add(BlockType.EXTERNAL_EVENT, "ar:turn_2.external.form.sig_3", event)
    feedback = FeedbackBody(turn_id="turn_1", origin="user", reaction="ok", text="")
    timeline.add(BlockType.FEEDBACK, "ar:turn_2.round.0.feedback.0", feedback)

    present = fold(timeline)

    assert [block.type.value for block in present.events] == ["user.followup", "event.external"]
    assert present.feedback == [feedback]


def test_open_plans_are_the_current_one_and_those_of_the_newest_turn() -> None:
    timeline = play()
    moment = PlanMoment(timeline.turn_id, NOW)
    for plan in new_plan([], plan_id=PlanId("plan_a"), labels=["a"], moment=moment):
        timeline.add(BlockType.PLAN, plan.snapshot_ref, PlanBody(plan=plan))

    assert [plan.plan_id for plan in fold(timeline).open_plans] == ["plan_a"]
