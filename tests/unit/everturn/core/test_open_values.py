"""Values of a newer version are read: known ones unchanged, unknown ones as a neutral fallback."""

import json

import pytest
from prometheus_client import REGISTRY

from everturn.conversations.model import ConversationState
from everturn.core.identity import Lane, Role, read_roles
from everturn.core.ids import TurnId
from everturn.core.open_values import OpenEnum
from everturn.events.model import ChatSignal, parse_envelope
from everturn.files.model import ArtifactKind
from everturn.timeline.blocks import (
    BlockDraft,
    BlockType,
    NotesBody,
    ToolResultBody,
    UnknownBody,
    chain_blocks,
    link_hash,
    parse_body,
)
from everturn.timeline.turns import Outcome, SignalKind, SignalState, TurnStatus
from everturn.turns.model import ApprovalState, EffectState
from everturn.turns.postgres_rows import read_block, read_payload, read_request
from everturn_testing.timeline import first_broken_link

FALLBACKS: tuple[tuple[type[OpenEnum], OpenEnum], ...] = (
    (SignalKind, SignalKind.UNKNOWN),
    (SignalState, SignalState.UNKNOWN),
    (TurnStatus, TurnStatus.UNKNOWN),
    (Outcome, Outcome.UNKNOWN),
    (ConversationState, ConversationState.UNKNOWN),
    (BlockType, BlockType.UNKNOWN),
    (Lane, Lane.ANONYMOUS),
    (EffectState, EffectState.AMBIGUOUS),
    (ApprovalState, ApprovalState.WITHDRAWN),
    (ArtifactKind, ArtifactKind.RESULT),
)


@pytest.mark.parametrize(("kind", "fallback"), FALLBACKS)
def test_an_unknown_value_is_read_as_its_fallback_and_counted(kind: type[OpenEnum], fallback: OpenEnum) -> None:
    labels = {"kind": kind.__name__}
    before = REGISTRY.get_sample_value("everturn_unknown_values_total", labels) or 0.0

    assert kind("of_a_newer_version") is fallback

    assert REGISTRY.get_sample_value("everturn_unknown_values_total", labels) == before + 1


def test_a_value_that_is_not_text_is_still_refused() -> None:
    with pytest.raises(ValueError, match="None is not a valid"):
        SignalKind(None)


def test_an_unknown_role_grants_nothing() -> None:
    assert read_roles(["paid", "emperor"]) == {Role.PAID}


def test_fields_of_a_newer_version_are_left_out() -> None:
    artifact = {
        "id": "art_1", "turn_id": "turn_1", "ref": "fi:a", "rn": "ef:a", "kind": "hologram", "filename": "a",
        "path": "a", "mime": "text/plain", "size": 1, "sha256": "0", "object_key": "k", "visibility": "external",
        "verdict": "clean", "beams": 3,
    }  # fmt: skip
    said = {"text": "Hi", "attachments": [artifact], "mood": "good"}

    assert read_payload(json.dumps(said)).attachments[0].kind is ArtifactKind.RESULT
    assert read_request(json.dumps(said)).text == "Hi"
    assert parse_body(BlockType.NOTES, '{"text":"a","mood":"good"}') == NotesBody(text="a")


def test_an_unknown_enum_value_makes_the_body_unknown() -> None:
    assert parse_body(BlockType.TOOL_RESULT, '{"tool_id":"t","status":"postponed","text":""}') == UnknownBody()
    assert isinstance(parse_body(BlockType.TOOL_RESULT, '{"tool_id":"t","status":"ok","text":""}'), ToolResultBody)


def test_a_block_of_an_unknown_type_keeps_its_place_in_the_hash_chain() -> None:
    (known,) = chain_blocks(
        [BlockDraft(TurnId("turn_1"), 0, BlockType.NOTES, "r", NotesBody(text="a"), "t")], next_seq=1, last_hash="0"
    )
    body = '{"beams":3}'
    where = {
        "seq": 2,
        "turn_id": "turn_1",
        "round": 1,
        "type": "react.hologram",
        "ref": "r",
        "call_id": None,
        "ts": "t",
    }
    row = {**where, "body": body, "ts_first": None, "hash": link_hash(known.hash, body=body, **where)}

    block = read_block(row)

    assert (block.type, block.body, block.body_json, block.type_name) == (
        BlockType.UNKNOWN,
        UnknownBody(),
        body,
        "react.hologram",
    )
    assert first_broken_link([known, block], last_hash="0") is None


def test_an_event_with_unknown_values_and_fields_is_parsed() -> None:
    data = {"signal_id": "sig_1", "kind": "pause", "state": "parked", "text": "x", "until": "noon"}
    encoded = json.dumps({"type": "chat.signal", "ts": "", "conversation_id": "conv_1", "beams": 3, "data": data})

    read = parse_envelope(encoded).data

    assert isinstance(read, ChatSignal)
    assert (read.kind, read.state, read.text) == ("unknown", "unknown", "x")
