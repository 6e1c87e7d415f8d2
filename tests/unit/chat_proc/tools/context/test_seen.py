"""What the model has before it, and what it has lost sight of."""

from chat_proc.tools.context.seen import Seen, ShownText, build_shown_data, shown_texts
from everturn.core import refs
from everturn.core.ids import TurnId
from everturn.timeline.blocks import Block, BlockType, HideBody, StoredText, SystemMessageBody, ToolResultBody
from everturn.timeline.forms import Form
from everturn_testing.timeline import TimelineBuilder, build_file

SHOWN = ShownText(ref="fi:turn_1.files/a.md", digest="d1")
PHOTO = build_file("turn_1", "photo.png", b"png", mime="image/png")


def start() -> TimelineBuilder:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Hello", PHOTO)
    timeline.start_round()
    timeline.result("call_1", "react.read", "text", data={"shown": build_shown_data([SHOWN])})
    return timeline


def hide(timeline: TimelineBuilder, ref: str) -> None:
    body = HideBody(refs=(ref,), through_seq=len(timeline.blocks), replacement="gone")
    timeline.add(BlockType.HIDE, refs.round_ref("turn_1", 1, "hide"), body)


def seen(timeline: TimelineBuilder) -> Seen:
    return Seen(timeline.blocks, timeline.turn_id)


def last(timeline: TimelineBuilder, kind: BlockType) -> Block:
    return next(block for block in reversed(timeline.blocks) if block.type is kind)


def test_a_short_block_is_held_whole() -> None:
    timeline = start()

    assert seen(timeline).holds_whole(last(timeline, BlockType.USER_PROMPT))


def test_a_hidden_block_is_not_held() -> None:
    timeline = start()
    hide(timeline, "ar:turn_1.user.prompt")

    assert not seen(timeline).holds_whole(last(timeline, BlockType.USER_PROMPT))
    assert seen(timeline).form_of(last(timeline, BlockType.USER_PROMPT)) is Form.REPLACED


def test_a_pruned_block_is_not_held() -> None:
    timeline = start()
    prompt = last(timeline, BlockType.USER_PROMPT)
    timeline.start_turn("turn_2", "More")
    notice = SystemMessageBody(kind="cache_ttl_pruned", text="pruned", recent_from_seq=9, intact_from_seq=9)
    timeline.add(BlockType.SYSTEM_MESSAGE, refs.round_ref("turn_2", 0, "pruned"), notice)

    assert not seen(timeline).holds_whole(prompt)


def test_a_preview_of_a_stored_result_is_not_the_whole() -> None:
    timeline = start()
    whole = StoredText(object_key="k", sha256="d", chars=9, bytes=9)
    body = ToolResultBody(tool_id="demo", status="ok", text="preview", whole=whole)
    block = timeline.add(BlockType.TOOL_RESULT, refs.result_ref("turn_1", "call_2"), body)

    assert not seen(timeline).holds_whole(block)


def test_an_earlier_read_of_the_same_content_is_found_while_it_is_visible() -> None:
    timeline = start()

    assert seen(timeline).find_read(SHOWN.ref, "d1") == "tc:turn_1.call_1.result"
    assert seen(timeline).find_read(SHOWN.ref, "another content") is None
    hide(timeline, "tc:turn_1.call_1.result")
    assert seen(timeline).find_read(SHOWN.ref, "d1") is None


def test_an_image_of_this_turn_is_seen_and_one_of_an_earlier_turn_is_not() -> None:
    timeline = start()

    assert seen(timeline).find_media(PHOTO.sha256) == PHOTO.ref
    assert Seen(timeline.blocks, TurnId("turn_2")).find_media(PHOTO.sha256) is None


def test_data_of_other_tools_is_no_shown_text() -> None:
    timeline = start()
    timeline.result("call_2", "demo", "text", data={"shown": "yes"})

    assert shown_texts(timeline.blocks[-1]) == ()


def test_only_short_blocks_of_a_light_turn_are_shown_in_full() -> None:
    timeline = start()
    timeline.result("call_2", "demo", "x" * 5000)
    bulky, prompt = timeline.blocks[-1], last(timeline, BlockType.USER_PROMPT)
    timeline.start_turn("turn_2", "More")
    start_seq = len(timeline.blocks) - 1
    notice = SystemMessageBody(kind="cache_ttl_pruned", text="", recent_from_seq=1, intact_from_seq=start_seq)
    timeline.add(BlockType.SYSTEM_MESSAGE, refs.round_ref("turn_2", 0, "pruned"), notice)

    assert seen(timeline).form_of(prompt) is Form.LIGHT
    assert seen(timeline).holds_whole(prompt)
    assert not seen(timeline).holds_whole(bulky)
