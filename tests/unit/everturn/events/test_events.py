"""Events on the wire."""

import json
from typing import get_args

import pytest
from helpers.event_examples import EXAMPLES
from pydantic import ValidationError

from everturn.events import model as events
from everturn.events.model import EVENT_TYPES, AnyEvent, Envelope, encode_envelope, event_name, parse_envelope


def envelope_of(data: AnyEvent) -> Envelope:
    return Envelope(id="1-2", type=data.type, ts="2026-01-02T03:04:05.000Z", conversation_id="conv_1", data=data)


@pytest.mark.parametrize("event", EXAMPLES, ids=lambda event: event.type)
def test_every_event_reads_back_as_it_was_sent(event: AnyEvent) -> None:
    read = parse_envelope(encode_envelope(envelope_of(event)))

    assert read == envelope_of(event)


def test_no_event_is_left_out_above() -> None:
    assert tuple(event.type for event in EXAMPLES) == EVENT_TYPES


def test_an_encoded_envelope_is_one_line_and_names_its_type_once() -> None:
    event = events.ChatStep(step="s", status="started", title="two\nlines\u2028", params={"a": None})

    encoded = encode_envelope(envelope_of(event))

    assert b"\n" not in encoded
    assert json.loads(encoded)["data"] == {
        "step": "s",
        "status": "started",
        "title": "two\nlines\u2028",
        "params": {"a": None},
    }


@pytest.mark.parametrize(
    "encoded",
    [
        b"",
        b"[]",
        b"{}",
        b'{"type":"ready","ts":"","conversation_id":"c","data":[]}',
        b'{"type":"x","ts":"","conversation_id":"c","data":{}}',
    ],
)
def test_an_invalid_envelope_is_refused(encoded: bytes) -> None:
    with pytest.raises(ValidationError):
        parse_envelope(encoded)


def test_names_of_events_have_no_dots() -> None:
    assert event_name("chat.delta") == "chat_delta"
    assert len(set(map(event_name, EVENT_TYPES))) == len(get_args(AnyEvent))
