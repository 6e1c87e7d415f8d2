"""Rendering: requests grow only at their end, and images and PDFs of the last turn come with it."""

import hashlib
from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from chat_proc.attachments.media import describe_media
from chat_proc.attachments.policy import MAX_MEDIA_PARTS
from chat_proc.timeline.view import BreakReason, PromptRenderer
from everturn.files.model import ArtifactKind
from everturn.models.port import MediaData, MediaPart, ModelTraits, PromptMessage, TextPart, encode_media
from everturn.models.tokens import CharsPerToken
from everturn.timeline.blocks import (
    Block,
    BlockType,
    HideBody,
    NotesBody,
    RangeSummaryBody,
    SystemMessageBody,
)
from everturn.timeline.forms import UNSEEN
from everturn_testing.timeline import TimelineBuilder, build_file

SEEING = ModelTraits(name="m", context_tokens=200_000, images=True, documents=True)
BLIND = ModelTraits(name="m", context_tokens=200_000, images=False, documents=False)
PHOTO = build_file("turn_1", "photo.png", b"png", mime="image/png")


def renderer(traits: ModelTraits = SEEING) -> PromptRenderer:
    return PromptRenderer(system_prompt="You are helpful.", traits=traits)


def render(
    blocks: Sequence[Block],
    media: Mapping[str, MediaData] | None = None,
    *,
    tail: Sequence[str] = ("[ANNOUNCE]",),
    traits: ModelTraits = SEEING,
) -> tuple[PromptMessage, ...]:
    fresh = renderer(traits)
    fresh.take(blocks)
    return fresh.render(tail, media or {})


def flatten(messages: tuple[PromptMessage, ...]) -> list[bytes]:
    """All parts before ANNOUNCE; providers cache whole parts."""
    parts = [part for message in messages for part in message.parts][:-1]
    return [part.text.encode() if isinstance(part, TextPart) else part.data.base64 for part in parts]


def digest(parts: Sequence[bytes]) -> str:
    return hashlib.sha256(b"\x00".join(parts)).hexdigest()


def play(steps: list[str]) -> list[Block]:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_0", "Begin")
    turn_from = 1
    for number, step in enumerate(steps, start=1):
        last = len(timeline.blocks)
        match step:
            case "turn":
                timeline.answer("done")
                turn_from = len(timeline.blocks) + 1
                timeline.start_turn(f"turn_{number}", "Next\n[TURN turn_9]", PHOTO)
            case "signal":
                timeline.say("followup", f"sig_{number}", "more")
            case "hide":
                body = HideBody(refs=(timeline.blocks[-1].ref,), through_seq=last, replacement="hidden")
                timeline.add(BlockType.HIDE, f"ar:turn_0.round.{number}.hide", body)
            case "prune":
                notice = SystemMessageBody(
                    kind="cache_ttl_pruned", text="x", recent_from_seq=turn_from, intact_from_seq=turn_from
                )
                timeline.add(BlockType.SYSTEM_MESSAGE, f"ar:turn_0.round.{number}.pruned", notice)
            case "history" | "turn checkpoint":
                summary = RangeSummaryBody(
                    scope="history" if step == "history" else "turn", first_seq=turn_from, last_seq=last,
                    turn_ids=("turn_0",), text="summary", before_tokens=9, after_tokens=1, by="rules",
                )  # fmt: skip
                timeline.add(BlockType.RANGE_SUMMARY, "su:turn_0.conv.range.summary", summary)
            case _:
                timeline.start_round()
                timeline.think("hm")
                timeline.call(f"call_{number}", "react.read", {"b": 1, "a": "x" * 3000})
                timeline.result(f"call_{number}", "react.read", step * 5000)
    return timeline.blocks


@given(
    steps=st.lists(
        st.sampled_from(["turn", "signal", "round ", "hide", "prune", "history", "turn checkpoint"]), max_size=12
    ),
    dropped=st.sets(st.integers(1, 40)),
)
def test_a_request_is_a_prefix_of_the_next_one_until_a_break_is_declared(steps: list[str], dropped: set[int]) -> None:
    blocks, kept = play(steps), renderer()
    media = {PHOTO.sha256: encode_media(b"png")}
    before: list[bytes] = []

    for end in range(1, len(blocks) + 1):
        breaks = kept.take(blocks[end - 1 : end])
        request = flatten(kept.render([f"[ANNOUNCE]\n{end}"], media))

        if not breaks:
            assert digest(request[: len(before)]) == digest(before)
        assert request == flatten(render(blocks[:end], media))
        before = request
        if end in dropped:
            kept.drop_media()


def test_every_break_names_its_reason() -> None:
    steps = ["turn", "turn", "round ", "hide", "prune", "turn checkpoint", "history"]
    kept = renderer()

    reasons = [each.reason.value for block in play(steps) for each in kept.take([block])]

    assert reasons == ["media", "hide", "prune", "checkpoint", "compaction"]


def test_a_block_is_rendered_once() -> None:
    blocks, kept = play(["round "]), renderer()
    kept.take(blocks)

    first = kept.render(["a"], {})[1].parts
    second = kept.render(["b"], {})[1].parts

    assert all(
        old.text is new.text
        for old, new in zip(first[:-1], second[:-1], strict=True)
        if isinstance(old, TextPart) and isinstance(new, TextPart)
    )


def test_a_round_renders_only_its_own_blocks_however_long_the_turn_is() -> None:
    kept = renderer()
    built: list[int] = []
    blocks = play(["round "] * 200)

    for start in range(2, len(blocks), 4):
        before = kept.view.texts_built
        kept.take(blocks[: start + 4] if start == 2 else blocks[start : start + 4])
        kept.render(["[ANNOUNCE]"], {})
        built.append(kept.view.texts_built - before)

    assert set(built[1:]) == {3}


def test_announce_is_never_a_cache_point() -> None:
    system, user = render(play(["round ", "turn", "round ", "round "]), tail=["[SOURCES POOL]", "[ANNOUNCE]"])

    marked = [part for part in (*system.parts, *user.parts) if isinstance(part, TextPart) and part.cache_point]
    assert len(marked) == 4
    assert user.parts[-2:] == (TextPart("[SOURCES POOL]"), TextPart("[ANNOUNCE]"))
    assert isinstance(user.parts[-3], TextPart)
    assert user.parts[-3].cache_point


def test_media_of_the_last_turn_follows_its_block() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Look", PHOTO)

    parts = render(timeline.blocks, {PHOTO.sha256: encode_media(b"png")})[1].parts

    assert parts[-2] == MediaPart(mime="image/png", data=encode_media(b"png"), name="photo.png")
    assert isinstance(parts[-3], TextPart)
    assert parts[-3].text.startswith("[user.attachment.meta ")


def test_media_of_earlier_turns_is_named_only() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Look", PHOTO)
    timeline.start_turn("turn_2", "And?")

    parts = render(timeline.blocks, {PHOTO.sha256: encode_media(b"png")})[1].parts

    assert not any(isinstance(part, MediaPart) for part in parts)


def test_a_model_without_vision_gets_a_note() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Look", PHOTO)

    parts = render(timeline.blocks, {PHOTO.sha256: encode_media(b"png")}, traits=BLIND)[1].parts

    assert not any(isinstance(part, MediaPart) for part in parts)
    assert isinstance(parts[-2], TextPart)
    assert "doesn't show the file" in parts[-2].text


def test_media_beyond_the_caps_is_only_named() -> None:
    photos = [build_file("turn_1", f"{n}.png", bytes([n]), mime="image/png") for n in range(MAX_MEDIA_PARTS + 5)]
    big = build_file("turn_1", "big.png", b"big", mime="image/png")
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Look", big, *photos)
    media = {photo.sha256: encode_media(photo.filename.encode()) for photo in photos}
    media[big.sha256] = encode_media(bytes(6 * 1024 * 1024))

    parts = render(timeline.blocks, media)[1].parts

    shown = [part.name for part in parts if isinstance(part, MediaPart)]
    named = [part.text for part in parts if isinstance(part, TextPart) and part.text.endswith(UNSEEN)]
    assert shown == [photo.filename for photo in photos[:MAX_MEDIA_PARTS]]
    assert len(named) == 6


def test_an_empty_timeline_still_gives_a_request() -> None:
    assert render([])[1].parts == (TextPart("[ANNOUNCE]"),)


def test_tokens_count_the_system_text_the_view_the_tail_and_media() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Look", PHOTO)
    kept = renderer()
    kept.take(timeline.blocks)
    kept.render(["tail"], {PHOTO.sha256: encode_media(b"png")})

    chars = len("You are helpful.") + kept.view.chars + len("tail")

    assert kept.tokens(CharsPerToken(1.0), ["tail"]) == chars + 1_600


def test_media_is_no_longer_attached_when_its_turn_is_over() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Look", PHOTO)
    kept = renderer()
    kept.take(timeline.blocks)
    first = kept.render(["x"], {PHOTO.sha256: encode_media(b"png")})[1].parts

    at = len(timeline.blocks)
    timeline.start_turn("turn_2", "And?")
    breaks = kept.take(timeline.blocks[at:])
    second = kept.render(["x"], {PHOTO.sha256: encode_media(b"png")})[1].parts

    assert sum(isinstance(part, MediaPart) for part in first) == 1
    assert sum(isinstance(part, MediaPart) for part in second) == 0
    assert [each.reason for each in breaks] == [BreakReason.MEDIA]


def test_a_produced_pdf_is_attached_only_if_it_was_read() -> None:
    report = build_file("turn_1", "report.pdf", b"pdf", mime="application/pdf", kind=ArtifactKind.OUTPUT)
    archive = build_file("turn_1", "data.zip", b"zip", mime="application/zip", kind=ArtifactKind.OUTPUT)
    media = {report.sha256: encode_media(b"pdf"), archive.sha256: encode_media(b"zip")}
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Write it", build_file("turn_1", "in.zip", b"zip", mime="application/zip"))
    timeline.result("call_1", "exec_tools.execute_code_python", "done", report, archive)
    unread = render(timeline.blocks, media)[1].parts
    shown = [describe_media(file).model_dump(mode="json") for file in (report, archive)]
    timeline.result("call_2", "react.read", "attached", data={"attached": shown})
    read = render(timeline.blocks, media)[1].parts

    assert [part for part in unread if isinstance(part, MediaPart)] == []
    assert [part.name for part in read if isinstance(part, MediaPart)] == ["report.pdf"]


def test_what_is_long_is_bounded_with_its_size_whatever_it_is() -> None:
    text = "word " * 20_000
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Go")
    timeline.start_round()
    timeline.add(BlockType.NOTES, "ar:turn_1.react.notes.call_1", NotesBody(text=text))
    timeline.call("call_1", "exec_tools.execute_code_python", {"text": text}, code=text)
    timeline.result("call_1", "exec_tools.execute_code_python", text, status="error")

    parts = [part.text for part in render(timeline.blocks)[1].parts if isinstance(part, TextPart)]

    long = [part for part in parts if "of 100000 characters" in part]
    assert len(long) == 4
    assert max(map(len, long)) < 25_000
    assert any(part.startswith("[react.tool.result tc:turn_1.call_1.result] error\nword") for part in parts)


def test_a_round_shows_thinking_calls_and_signals_in_order() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Go")
    timeline.start_round()
    timeline.say("followup", "sig_1", "and the mean")
    timeline.think("two things")
    for number in (1, 2):
        timeline.call(f"call_{number}", "react.read", {})
    for number in (1, 2):
        timeline.result(f"call_{number}", "react.read", "ok")

    parts = [part.text for part in render(timeline.blocks)[1].parts if isinstance(part, TextPart)]

    assert [part.split()[0] for part in parts[2:-1]] == [
        "[user.followup", "[react.thinking", "[react.tool.call", "[react.tool.call",
        "[react.tool.result", "[react.tool.result",
    ]  # fmt: skip


def test_a_picture_is_attached_once_it_can_be_loaded() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "What is in this picture?", PHOTO)
    kept = renderer()
    kept.take(timeline.blocks)
    media = {PHOTO.sha256: encode_media(b"png")}

    away = kept.render(["[ANNOUNCE]"], {})[1].parts
    back = kept.render(["[ANNOUNCE]"], media)[1].parts

    assert not any(isinstance(part, MediaPart) for part in away)
    assert any(isinstance(part, TextPart) and part.text.endswith(UNSEEN) for part in away)
    assert flatten(kept.render(["[ANNOUNCE]"], media)) == flatten(render(timeline.blocks, media))
    assert any(isinstance(part, MediaPart) for part in back)


def wanted(timeline: TimelineBuilder, traits: ModelTraits = SEEING) -> list[str]:
    fresh = renderer(traits)
    fresh.take(timeline.blocks)
    return [media.name for media in fresh.wanted_media]


def test_media_of_the_last_turn_is_wanted_if_the_model_can_see_it() -> None:
    report = build_file("turn_2", "report.pdf", b"pdf", mime="application/pdf")
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Look", PHOTO)
    timeline.start_turn("turn_2", "And now?")
    timeline.say("followup", "sig_1", "this too", report)

    assert wanted(timeline) == ["report.pdf"]
    assert wanted(timeline, BLIND) == []


def test_a_file_that_was_read_again_is_wanted_without_its_turn() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_9", "Look again")
    timeline.result("call_9", "react.read", "", data={"attached": [describe_media(PHOTO).model_dump(mode="json")]})

    assert wanted(timeline) == ["photo.png"]


def test_an_earlier_file_that_arrives_late_displaces_a_later_one() -> None:
    first, second = (
        build_file("turn_1", name, data, mime="application/pdf") for name, data in (("a", b"a"), ("b", b"b"))
    )
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Look", first, second)
    kept = renderer()
    kept.take(timeline.blocks)

    kept.render(["x"], {second.sha256: encode_media(b"later")})
    parts = kept.render(["x"], {first.sha256: encode_media(b"earlier")})[1].parts

    assert [part.name for part in parts if isinstance(part, MediaPart)] == ["a"]
    assert sum(isinstance(part, TextPart) and part.text.endswith(UNSEEN) for part in parts) == 1
