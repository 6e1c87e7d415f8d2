"""A manifest has the origin and size of each part of a request, without its text."""

import hashlib
import json
from dataclasses import replace
from typing import Any

from chat_proc.attachments.media import describe_media
from chat_proc.timeline.arrangement import append_tail, arrange_natively
from chat_proc.timeline.view import PromptRenderer
from chat_proc.turn.manifests import ManifestBuilder, RequestRecord, StoredPreamble
from everturn.core.ids import TurnId
from everturn.models.port import (
    ModelRequest,
    ModelTraits,
    PromptMessage,
    TextPart,
    ToolCallPart,
    ToolDeclaration,
    ToolResultPart,
    encode_media,
)
from everturn.models.tokens import CharsPerToken
from everturn.timeline.blocks import Block, BlockType, HideBody, NotesBody
from everturn.timeline.forms import hash_text, try_rebuild_arguments, try_rebuild_text
from everturn.timeline.manifests import Manifest, ManifestSegment, encode_tools
from everturn_testing.timeline import NOW, TimelineBuilder, build_file

TRAITS = ModelTraits(name="m", context_tokens=200_000, images=True, documents=True)
PHOTO = build_file("turn_1", "photo.png", b"png", mime="image/png")


def record(renderer: PromptRenderer, *, ratio: float = 2.0) -> RequestRecord:
    messages = renderer.render(["[SOURCES POOL]", "[ANNOUNCE]"], {PHOTO.sha256: encode_media(b"png")})
    return RequestRecord(
        request=ModelRequest(messages, 1000), items=tuple(renderer.rendered), turn_id="turn_1", round=2,
        model="m", sent_at=NOW, ratio=CharsPerToken(ratio), preamble=StoredPreamble(TurnId("turn_1"), "0" * 64),
    )  # fmt: skip


def begin() -> tuple[TimelineBuilder, PromptRenderer]:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Look, a secret", PHOTO)
    timeline.start_round()
    timeline.call("call_1", "demo.echo", {})
    timeline.result("call_1", "demo.echo", "a table")
    return timeline, PromptRenderer(system_prompt="You are helpful.", traits=TRAITS)


def hide_result(timeline: TimelineBuilder) -> Block:
    body = HideBody(refs=("tc:turn_1.call_1.result",), through_seq=len(timeline.blocks), replacement="hidden")
    return timeline.add(BlockType.HIDE, "ar:turn_1.round.1.hide", body)


def describe() -> tuple[ModelRequest, dict[str, Any]]:
    timeline, renderer = begin()
    hide_result(timeline)
    renderer.take(timeline.blocks)
    sent = record(renderer)
    return sent.request, json.loads(ManifestBuilder().build(sent))


def test_earlier_manifests_of_the_turn_change_nothing() -> None:
    timeline, renderer = begin()
    renderer.take(timeline.blocks)
    builder = ManifestBuilder()
    builder.build(record(renderer))
    for blocks in ([hide_result(timeline)], [timeline.add(BlockType.NOTES, "ar:x", NotesBody(text="Noted."))]):
        renderer.take(blocks)
        sent = record(renderer, ratio=3.0)

        assert builder.build(sent) == ManifestBuilder().build(sent)
        assert Manifest.model_validate_json(builder.build(sent)).segments[-1].text == "[ANNOUNCE]"


def test_each_part_names_its_origin_form_and_cache_point() -> None:
    _, manifest = describe()

    rows = [(row["origin"], row["ref"], row["form"], row["cache_point"]) for row in manifest["segments"]]

    assert rows == [
        ("system", "", "", True),
        ("block", "ar:turn_1.round.0.header", "full", False),
        ("block", "ar:turn_1.user.prompt", "full", False),
        ("block", PHOTO.ref, "full", False),
        ("media", PHOTO.ref, "full", False),
        ("block", "tc:turn_1.call_1.call", "full", True),
        ("block", "tc:turn_1.call_1.result", "replaced", False),
        ("tail", "", "", False),
        ("tail", "", "", False),
    ]


def test_sizes_tokens_and_hashes_are_those_of_the_parts() -> None:
    request, manifest = describe()
    system = request.messages[0].parts[0]

    segments = manifest["segments"]

    assert segments[0]["sha256"] == hashlib.sha256(b"You are helpful.").hexdigest()
    assert (segments[0]["chars"], segments[0]["tokens"]) == (len(system.text), 8)
    assert (segments[4]["tokens"], segments[4]["sha256"]) == (1_600, hashlib.sha256(b"png").hexdigest())
    assert manifest["tokens"] == sum(row["tokens"] for row in segments)
    assert (manifest["turn_id"], manifest["round"], manifest["model"]) == ("turn_1", 2, "m")


def test_no_text_of_the_conversation_is_in_it() -> None:
    assert "secret" not in json.dumps(describe()[1])


def record_native(timeline: TimelineBuilder) -> RequestRecord:
    renderer = PromptRenderer(system_prompt="You are helpful.", traits=TRAITS)
    renderer.take(timeline.blocks)
    renderer.attach({PHOTO.sha256: encode_media(b"png")})
    arranged = arrange_natively(
        renderer.rendered, renderer.view.turn_at, lambda tool_id: tool_id.replace(".", "__"),
        cache_at=frozenset(renderer.cache_points.indexes),
    )  # fmt: skip
    system = PromptMessage("system", (TextPart("You are helpful.", cache_point=True),))
    messages = (system, *append_tail(arranged.messages, ["[ANNOUNCE]"]))
    return RequestRecord(
        request=ModelRequest(messages, 1000), items=arranged.shown, turn_id="turn_1", round=2,
        model="m", sent_at=NOW, ratio=CharsPerToken(2.0), preamble=StoredPreamble(TurnId("turn_1"), "0" * 64),
    )  # fmt: skip


def begin_native() -> TimelineBuilder:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Look", PHOTO)
    timeline.start_round()
    timeline.think("Two at once.")
    timeline.call("call_1", "exec_tools.run", {"goal": "x" * 5_000}, code="print(1)\n")
    timeline.call("call_2", "demo.echo", {})
    timeline.result("call_2", "demo.echo", "two", data={"attached": [describe_media(PHOTO).model_dump()]})
    timeline.result("call_1", "exec_tools.run", "one")
    return timeline


def test_calls_and_results_are_listed_as_sent() -> None:
    manifest = Manifest.model_validate_json(ManifestBuilder().build(record_native(begin_native())))

    rows = [(row.role, row.origin, row.form, row.call_id, row.tool, row.cache_point) for row in manifest.segments[4:]]

    assert rows == [
        ("user", "media", "full", None, None, False),
        ("assistant", "block", "written", None, None, False),
        ("assistant", "call", "written", "call_1", "exec_tools__run", False),
        ("assistant", "call", "written", "call_2", "demo__echo", False),
        ("tool", "block", "full", "call_1", None, False),
        ("tool", "block", "full", "call_2", None, True),
        ("user", "media", "full", None, None, False),
        ("user", "tail", "", None, None, False),
    ]
    assert manifest.tokens == sum(row.tokens for row in manifest.segments)


def test_declared_tools_are_the_first_part() -> None:
    sent = record_native(begin_native())
    tools = (ToolDeclaration("demo__echo", "Echoes.", {"type": "object"}),)

    manifest = Manifest.model_validate_json(
        ManifestBuilder().build(replace(sent, request=replace(sent.request, tools=tools)))
    )

    first, second = manifest.segments[:2]
    assert (first.origin, first.role, first.sha256) == ("tools", None, hash_text(encode_tools(tools)))
    assert (second.origin, second.role) == ("system", "system")
    assert manifest.tokens == sum(row.tokens for row in manifest.segments)


def test_the_exact_text_of_each_message_can_be_rebuilt_from_the_blocks() -> None:
    timeline = begin_native()
    sent = record_native(timeline)
    segments = Manifest.model_validate_json(ManifestBuilder().build(sent)).segments
    blocks = {block.seq: block for block in timeline.blocks}

    def rebuild(segment: ManifestSegment) -> str | None:
        if segment.origin == "call":
            return try_rebuild_arguments(blocks[segment.seq], blocks.get(segment.code_seq or 0), segment.sha256)
        return try_rebuild_text(blocks[segment.seq], segment.form, segment.sha256)

    parts = [part for message in sent.request.messages for part in message.parts]
    for part, segment in zip(parts, segments, strict=True):
        match part:
            case ToolCallPart(arguments=text):
                assert rebuild(segment) == text
            case TextPart(text=text) | ToolResultPart(text=text) if segment.origin == "block":
                assert rebuild(segment) == text
            case _:
                assert segment.origin in ("system", "media", "tail")
