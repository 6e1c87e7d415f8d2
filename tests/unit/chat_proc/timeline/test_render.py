"""Rendering: requests grow only at their end, and images and PDFs of the last turn come with it."""

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from chat_proc.models.offline.reading import read_conversation
from chat_proc.timeline.announce import Budget, build_announce, build_announce_state
from chat_proc.timeline.render import MAX_MEDIA_PARTS, PromptRenderer
from everturn.model.block_bodies import AttachmentTextBody, PlanBody
from everturn.model.blocks import Block, BlockType
from everturn.model.ids import PlanId, TurnId
from everturn.model.llm.prompts import MediaPart, ModelRequest, PromptMessage, TextPart
from everturn.model.plans import PlanMoment, new_plan
from everturn.ports.language_model import ModelTraits
from everturn.testing.timelines import NOW, TimelineBuilder, build_file

SEEING = ModelTraits(name="m", context_tokens=200_000, images=True, documents=True)
BLIND = ModelTraits(name="m", context_tokens=200_000, images=False, documents=False)
PHOTO = build_file("turn_1", "photo.png", b"png", mime="image/png")


def renderer(traits: ModelTraits = SEEING) -> PromptRenderer:
    return PromptRenderer(system_prompt="You are helpful.", traits=traits)


def flatten(messages: tuple[PromptMessage, ...]) -> bytes:
    """All parts before ANNOUNCE, each with its boundary, for providers cache whole parts."""
    parts = [part for message in messages for part in message.parts][:-1]
    return b"".join(b"\x00" + (part.text.encode() if isinstance(part, TextPart) else part.data) for part in parts)


def play(steps: list[str]) -> list[Block]:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_0", "Begin")
    for number, step in enumerate(steps, start=1):
        match step:
            case "turn":
                timeline.answer("done")
                timeline.start_turn(f"turn_{number}", "Next\n[TURN turn_9]")
            case "signal":
                timeline.say("followup", f"sig_{number}", "more")
            case _:
                timeline.start_round()
                timeline.think("hm")
                timeline.call(f"call_{number}", "react.read", {"b": 1, "a": "x" * 3000})
                timeline.result(f"call_{number}", "react.read", step * 5000)
    return timeline.blocks


@given(steps=st.lists(st.sampled_from(["turn", "signal", "round "]), max_size=10))
def test_the_bytes_of_a_request_are_a_prefix_of_the_next_one(steps: list[str]) -> None:
    blocks, kept = play(steps), renderer()
    before = b""

    for end in range(2, len(blocks) + 1):
        request = flatten(kept.render(blocks[:end], f"[ANNOUNCE]\n{end}", {}))

        assert hashlib.sha256(request[: len(before)]).digest() == hashlib.sha256(before).digest()
        assert request == flatten(renderer().render(blocks[:end], "other", {}))
        before = request


def test_a_block_is_rendered_once() -> None:
    blocks, kept = play(["round "]), renderer()

    first = kept.render(blocks, "a", {})[1].parts
    second = kept.render(blocks, "b", {})[1].parts

    assert all(
        old.text is new.text
        for old, new in zip(first[:-1], second[:-1], strict=True)
        if isinstance(old, TextPart) and isinstance(new, TextPart)
    )


def test_the_system_text_and_the_tail_are_cache_points_and_announce_never_is() -> None:
    system, user = renderer().render(play(["round ", "turn", "round ", "round "]), "[ANNOUNCE]", {})

    marked = [part for part in (*system.parts, *user.parts) if isinstance(part, TextPart) and part.cache_point]
    assert len(marked) == 4
    assert user.parts[-1] == TextPart("[ANNOUNCE]")
    assert isinstance(user.parts[-2], TextPart)
    assert user.parts[-2].cache_point


def test_media_of_the_last_turn_follows_its_block() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Look", PHOTO)

    parts = renderer().render(timeline.blocks, "[ANNOUNCE]", {PHOTO.sha256: b"png"})[1].parts

    assert parts[-2] == MediaPart(mime="image/png", data=b"png", name="photo.png")
    assert isinstance(parts[-3], TextPart)
    assert parts[-3].text.startswith("[user.attachment.meta ")


def test_media_of_earlier_turns_is_named_only() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Look", PHOTO)
    timeline.start_turn("turn_2", "And?")

    parts = renderer().render(timeline.blocks, "[ANNOUNCE]", {PHOTO.sha256: b"png"})[1].parts

    assert not any(isinstance(part, MediaPart) for part in parts)


def test_a_model_that_sees_nothing_is_told_so() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Look", PHOTO)

    parts = renderer(BLIND).render(timeline.blocks, "[ANNOUNCE]", {PHOTO.sha256: b"png"})[1].parts

    assert not any(isinstance(part, MediaPart) for part in parts)
    assert isinstance(parts[-2], TextPart)
    assert "can't look at the file" in parts[-2].text


def test_media_beyond_the_caps_is_named_only_and_never_displaces_what_came_first() -> None:
    photos = [build_file("turn_1", f"{n}.png", bytes([n]), mime="image/png") for n in range(MAX_MEDIA_PARTS + 5)]
    big = build_file("turn_1", "big.png", b"big", mime="image/png")
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Look", big, *photos)
    media = {photo.sha256: photo.filename.encode() for photo in photos} | {big.sha256: bytes(6 * 1024 * 1024)}

    parts = renderer().render(timeline.blocks, "[ANNOUNCE]", media)[1].parts

    shown = [part.name for part in parts if isinstance(part, MediaPart)]
    assert shown == [photo.filename for photo in photos[:MAX_MEDIA_PARTS]]


def test_an_empty_timeline_still_gives_a_request() -> None:
    assert renderer().render([], "[ANNOUNCE]", {})[1].parts == (TextPart("[ANNOUNCE]"),)


def test_the_offline_model_reads_what_is_rendered() -> None:
    csv = build_file("turn_1", "my sales.csv", b"a,b", mime="text/csv")
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Sum it", csv)
    timeline.add(
        BlockType.ATTACHMENT_TEXT, csv.ref, AttachmentTextBody(filename=csv.filename, text="a,b", total_chars=3)
    )
    timeline.start_round()
    timeline.call("call_1", "exec_tools.execute_code_python", {"prog_name": "sum"}, code="print(1)")
    timeline.result("call_1", "exec_tools.execute_code_python", "RESULT {}")
    timeline.say("followup", "sig_1", "and the mean")
    (plan,) = new_plan([], plan_id=PlanId("plan_a"), labels=["sum"], moment=PlanMoment(TurnId("turn_1"), NOW))
    timeline.add(BlockType.PLAN, plan.snapshot_ref, PlanBody(plan=plan))
    budget = Budget(2, 15, 1.0, 1800, 10, 1000, 0.0, 1.0)
    state = build_announce_state(timeline.blocks, timeline.turn_id, budget=budget, code="yes", now=NOW)

    messages = renderer().render(timeline.blocks, build_announce(state), {})
    read = read_conversation(ModelRequest(messages, 1000))

    (attachment,) = read.now.attachments
    assert (attachment.name, attachment.path, attachment.preview) == ("my sales.csv", csv.path, "a,b")
    assert [(ask.kind, ask.text) for ask in read.now.asks] == [("prompt", "Sum it"), ("followup", "and the mean")]
    (call,) = read.now.calls
    assert (call.prog_name, call.ok, call.report) == ("sum", True, "RESULT {}")
    assert read.plan is not None
    assert (read.plan.plan_id, read.rounds_left) == ("plan_a", 13)
