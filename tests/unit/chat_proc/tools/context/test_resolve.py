"""Refs find what they name, and say why when there is nothing."""

import pytest

from chat_proc.tools.context.resolve import FoundFile, FoundText, Missing, Resolver
from everturn.model.artifacts import ArtifactKind
from everturn.model.block_bodies import NotesBody, PlanBody, SummaryBody
from everturn.model.blocks import BlockType
from everturn.model.ids import ConversationId, PlanId, TurnId
from everturn.model.plans import PlanMoment, mark_steps, new_plan
from everturn.testing.timelines import NOW, TimelineBuilder, build_file

CSV = build_file("turn_1", "sales.csv", b"a,b", mime="text/csv")
OLD = build_file("turn_1", "report.md", b"old", kind=ArtifactKind.FILE)
NEW = build_file("turn_1", "report.md", b"new", kind=ArtifactKind.FILE)


@pytest.fixture
def resolver() -> Resolver:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Hello", CSV)
    timeline.start_round()
    timeline.add(BlockType.NOTES, "ar:turn_1.react.notes.call_1", NotesBody(text="working"))
    timeline.call("call_1", "react.write", {"content": "x" * 5000})
    timeline.result("call_1", "react.write", "written", OLD)
    timeline.result("call_2", "react.write", "y" * 30_000, NEW)
    (plan,) = new_plan([], plan_id=PlanId("plan_a"), labels=["a", "b"], moment=PlanMoment(TurnId("turn_1"), NOW))
    marked = mark_steps(plan, "✓ [1]", moment=PlanMoment(TurnId("turn_1"), NOW))
    assert marked is not None
    for snapshot in (plan, marked):
        timeline.add(BlockType.PLAN, snapshot.snapshot_ref, PlanBody(plan=snapshot))
    timeline.say("followup", "sig_1", "and more")
    timeline.answer("first", n=1)
    timeline.answer("second", n=2)
    timeline.add(BlockType.WORKING_SUMMARY, "ws:turn_1.conv.working.summary", SummaryBody(text="Goal: x"))
    return Resolver(timeline.blocks, ConversationId("conv_1"), TurnId("turn_1"))


@pytest.mark.parametrize(
    ("ref", "text"),
    [
        ("ar:turn_1.user.prompt", "Hello"),
        ("ar:conv_1.turn_1.user.prompt", "Hello"),
        ("ar:turn_1.assistant.completion", "second"),
        ("ar:turn_1.assistant.completion.1", "first"),
        ("ar:turn_1.external.followup.sig_1", "and more"),
        ("ar:turn_1.react.notes.call_1", "working"),
        ("tc:turn_1.call_1.result", "written\n- fi:turn_1.files/report.md (text/plain, 3 bytes)"),
        ("ws:turn_1.conv.working.summary", "Goal: x"),
        ("ar:turn_1.react.plan.plan_a", "plan_id=plan_a (current)\n  ✓ [1] a\n  □ [2] b"),
        ("ar:plan.latest:plan_a", "plan_id=plan_a (current)\n  ✓ [1] a\n  □ [2] b"),
    ],
)
def test_a_text_of_the_timeline_is_found(resolver: Resolver, ref: str, text: str) -> None:
    found = resolver.find(ref)

    assert isinstance(found, FoundText)
    assert found.text == text
    assert found.shown_whole


def test_a_call_gives_all_of_its_parameters_though_the_prompt_cuts_them(resolver: Resolver) -> None:
    found = resolver.find("tc:turn_1.call_1.call")

    assert isinstance(found, FoundText)
    assert found.text == 'react.write\n{"content":"' + "x" * 5000 + '"}'
    assert not found.shown_whole


def test_a_result_beyond_the_preview_is_not_shown_whole(resolver: Resolver) -> None:
    found = resolver.find("tc:turn_1.call_2.result")

    assert isinstance(found, FoundText)
    assert not found.shown_whole


@pytest.mark.parametrize(
    ("text", "sha256"),
    [
        (CSV.ref, CSV.sha256),
        ("turn_1/attachments/sales.csv", CSV.sha256),
        ("attachments/sales.csv", CSV.sha256),
        (NEW.ref, NEW.sha256),
        ("files/report.md", NEW.sha256),
    ],
)
def test_a_file_is_found_by_ref_or_path_with_its_last_content(resolver: Resolver, text: str, sha256: str) -> None:
    found = resolver.find(text)

    assert isinstance(found, FoundFile)
    assert found.artifact.sha256 == sha256


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("ar:turn_9.user.prompt", "nothing is stored"),
        ("fi:turn_1.files/none.md", "no such file"),
        ("ar:plan.latest:plan_x", "no such plan"),
        ("ar:conv_2.turn_1.user.prompt", "another conversation"),
        ("ks:docs/a.md", "no knowledge"),
        ("so:sources_pool[1]", "nothing is stored"),
        ("/etc/passwd", "is no ref"),
        ("", "is no ref"),
    ],
)
def test_what_is_not_there_is_explained(resolver: Resolver, text: str, reason: str) -> None:
    found = resolver.find(text)

    assert isinstance(found, Missing)
    assert reason in found.reason
