"""A manifest has the origin and size of each part of a request, without its text."""

import hashlib
import json
from typing import Any

from chat_proc.timeline.view import PromptRenderer
from chat_proc.turn.manifests import ManifestBuilder, RequestRecord
from everturn.models.port import ModelRequest, ModelTraits
from everturn.models.tokens import CharsPerToken
from everturn.timeline.blocks import Block, BlockType, HideBody, NotesBody
from everturn.timeline.manifests import Manifest
from everturn_testing.timeline import NOW, TimelineBuilder, build_file

TRAITS = ModelTraits(name="m", context_tokens=200_000, images=True, documents=True)
PHOTO = build_file("turn_1", "photo.png", b"png", mime="image/png")


def record(renderer: PromptRenderer, *, ratio: float = 2.0) -> RequestRecord:
    messages = renderer.render(["[SOURCES POOL]", "[ANNOUNCE]"], {PHOTO.sha256: b"png"})
    return RequestRecord(
        request=ModelRequest(messages, 1000), items=tuple(renderer.rendered), turn_id="turn_1", round=2,
        model="m", sent_at=NOW, ratio=CharsPerToken(ratio), system_turn="turn_1",
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
