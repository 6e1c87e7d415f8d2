"""The messages that a model with native tool calls reads."""

import json

from hypothesis import given
from hypothesis import strategies as st

from chat_proc.attachments.media import describe_media
from chat_proc.timeline.arrangement import append_tail, arrange_natively
from chat_proc.timeline.view import PromptRenderer
from everturn.models.port import (
    MediaPart,
    ModelTraits,
    PromptMessage,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    encode_media,
)
from everturn.timeline.blocks import BlockType, HideBody, NoticeBody, RangeSummaryBody, SystemMessageBody
from everturn_testing.timeline import TimelineBuilder, build_file

TRAITS = ModelTraits("m", 100_000, images=True, documents=False)


def arrange(timeline: TimelineBuilder, *, cached: bool = False) -> tuple[PromptMessage, ...]:
    renderer = PromptRenderer(system_prompt="", traits=TRAITS)
    renderer.take(timeline.blocks)
    renderer.attach({media.sha256: encode_media(b"png") for media in renderer.wanted_media})
    points = frozenset(renderer.cache_points.indexes) if cached else frozenset[int]()
    return arrange_natively(
        renderer.rendered, renderer.view.turn_at, lambda tool_id: tool_id.replace(".", "__"), cache_at=points
    ).messages


def roles(messages: tuple[PromptMessage, ...]) -> list[str]:
    return [message.role for message in messages]


def begin() -> TimelineBuilder:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "An earlier question.")
    timeline.start_round()
    timeline.call("call_0", "react.read", {})
    timeline.result("call_0", "react.read", "old")
    timeline.answer("Done.")
    timeline.start_turn("turn_2", "Read both.")
    return timeline


def read_both(timeline: TimelineBuilder) -> None:
    timeline.start_round()
    timeline.think("I need both.")
    timeline.call("call_1", "react.read", {"path": "a"})
    timeline.call("call_2", "exec_tools.run", {"goal": "x"}, code="print(1)\n")
    # They ran side by side, and the second ended first.
    timeline.result("call_2", "exec_tools.run", "two")
    timeline.result("call_1", "react.read", "one")


def test_calls_of_the_running_turn_and_their_results_are_messages_of_their_own() -> None:
    timeline = begin()
    read_both(timeline)
    timeline.say("followup", "sig_1", "And the third.")

    messages = append_tail(arrange(timeline), ["[ANNOUNCE]"])

    assert roles(messages) == ["user", "assistant", "tool", "tool", "user"]
    text, first, second = messages[1].parts
    assert text == TextPart("I need both.")
    assert first == ToolCallPart("call_1", "react__read", '{"path": "a"}')
    assert isinstance(second, ToolCallPart)
    assert json.loads(second.arguments) == {"goal": "x", "code": "print(1)\n"}
    results = [part for message in messages[2:4] for part in message.parts if isinstance(part, ToolResultPart)]
    assert [(part.call_id, part.text.split()[-1]) for part in results] == [("call_1", "one"), ("call_2", "two")]
    assert "And the third." in str(messages[4]) and messages[4].parts[-1] == TextPart("[ANNOUNCE]")
    assert "An earlier question." in str(messages[0]) and "call_0" in str(messages[0])


def test_a_call_without_a_visible_result_stays_in_the_record() -> None:
    pending, hidden = begin(), begin()
    pending.start_round()
    pending.call("call_1", "react.read", {"path": "a"})
    read_both(hidden)
    result = next(block for block in hidden.blocks if block.type is BlockType.TOOL_RESULT and block.call_id == "call_1")
    hidden.start_round()
    hidden.add(BlockType.HIDE, "ar:turn_2.hide", HideBody(refs=(result.ref,), replacement="gone", through_seq=99))

    assert roles(arrange(pending)) == ["user"]
    assert roles(arrange(hidden)) == ["user"] and "gone" in str(arrange(hidden))


def test_the_images_of_results_follow_all_results() -> None:
    timeline = begin()
    timeline.start_round()
    timeline.call("call_1", "react.read", {})
    timeline.call("call_2", "react.read", {})
    attached = describe_media(build_file("turn_1", "photo.png", b"png", mime="image/png")).model_dump()
    timeline.result("call_1", "react.read", "a picture", data={"attached": [attached]})
    timeline.result("call_2", "react.read", "a text")

    messages = arrange(timeline)

    assert roles(messages) == ["user", "assistant", "tool", "tool", "user"]
    assert isinstance(messages[4].parts[0], MediaPart)


def test_the_cache_point_of_a_round_is_its_last_result() -> None:
    timeline = begin()
    read_both(timeline)
    timeline.start_round()
    timeline.call("call_3", "react.read", {"path": "c"})
    timeline.result("call_3", "react.read", "three")

    messages = arrange(timeline, cached=True)

    marked = [
        part.call_id if isinstance(part, ToolResultPart) else part.text.partition("\n")[0]
        for message in messages
        for part in message.parts
        if isinstance(part, TextPart | ToolResultPart) and part.cache_point
    ]
    assert marked[-2:] == ["call_2", "call_3"]
    assert set(roles(messages)) == {"user", "assistant", "tool"}


STEPS = st.lists(
    st.sampled_from(["calls", "followup", "notice", "answer", "turn", "hide", "prune", "history", "checkpoint"]),
    max_size=10,
)


def add_step(timeline: TimelineBuilder, n: int, step: str, turn_from: int) -> None:
    last = len(timeline.blocks)
    match step:
        case "calls":
            timeline.start_round()
            timeline.think("Hm.")
            timeline.call(f"call_{n}x", "react.read", {"n": n, "text": "x" * 3_000})
            timeline.call(f"call_{n}y", "react.read", {"n": n})
            timeline.result(f"call_{n}y", "react.read", "text " * 1_000)
            timeline.result(f"call_{n}x", "react.read", "text")
        case "followup":
            timeline.say("followup", f"sig_{n}", "More.")
        case "notice":
            timeline.start_round()
            timeline.add(BlockType.NOTICE, f"ar:{timeline.turn_id}.notice.{n}", NoticeBody(code="not_json", text="No."))
        case "answer":
            timeline.start_round()
            timeline.answer("So.", n + 1)
        case "turn":
            timeline.start_turn(f"turn_{n + 3}", "And now?")
        case "hide":
            body = HideBody(refs=(timeline.blocks[-1].ref,), through_seq=last, replacement="hidden")
            timeline.add(BlockType.HIDE, f"ar:{timeline.turn_id}.hide.{n}", body)
        case "prune":
            body = SystemMessageBody(
                kind="cache_ttl_pruned", text="x", recent_from_seq=turn_from, intact_from_seq=turn_from
            )
            timeline.add(BlockType.SYSTEM_MESSAGE, f"ar:{timeline.turn_id}.pruned.{n}", body)
        case _:
            body = RangeSummaryBody(
                scope="turn" if step == "checkpoint" else "history",
                first_seq=turn_from,
                last_seq=last,
                turn_ids=("turn_1",),
                text="summary",
                before_tokens=9,
                after_tokens=1,
                by="rules",
            )
            timeline.add(BlockType.RANGE_SUMMARY, f"su:{timeline.turn_id}.conv.range.summary", body)


@given(STEPS)
def test_native_messages_are_a_prefix_of_the_next_ones_until_a_break_is_declared(steps: list[str]) -> None:
    timeline, kept = begin(), PromptRenderer(system_prompt="", traits=TRAITS)
    kept.take(timeline.blocks)
    turn_from, before = len(timeline.blocks), flatten(arrange(timeline))
    record = before
    for n, step in enumerate(steps):
        known = len(timeline.blocks)
        turn_from = known + 1 if step == "turn" else turn_from
        add_step(timeline, n, step, turn_from)
        breaks = kept.take(timeline.blocks[known:])

        after = flatten(arrange(timeline))

        if not breaks:
            # The rounds of a turn become part of the record when the next one begins.
            stable = record if step == "turn" else before
            assert after[: len(stable)] == stable
        before = after
        if breaks or step == "turn":
            record = after if step == "turn" else []


def flatten(messages: tuple[PromptMessage, ...]) -> list[tuple[str, object]]:
    """Neighbouring parts of one role share a message, so a message may grow at its end."""
    return [(message.role, part) for message in messages for part in message.parts]
