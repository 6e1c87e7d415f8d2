"""Estimates of whole requests count every message, round up, and take media in."""

import json
from dataclasses import replace

from everturn.models.port import MediaPart, encode_media
from everturn.models.tokens import CharsPerToken, count_chars, count_media_tokens, estimate_request
from everturn_testing.models.model_contract import PARAMETERS, build_json_request, build_native_request, build_request


def test_estimates_round_up_and_count_all_messages() -> None:
    request = build_request("abcd", system="efg")

    assert count_chars(request) == 7
    assert estimate_request(request, CharsPerToken(2.0)) == 4


def test_calls_results_and_declarations_are_counted() -> None:
    request = build_native_request()
    without = replace(request, tools=())
    declared = ["read", "Runs read.", "write", "Runs write.", *[json.dumps(PARAMETERS)] * 2]

    assert count_chars(without) == 72
    assert count_chars(request) == 72 + sum(map(len, declared))


def test_the_schema_of_the_reply_is_counted() -> None:
    assert count_chars(build_json_request()) == count_chars(build_json_request(None)) + len(json.dumps(PARAMETERS))


def test_media_is_counted_beside_the_text() -> None:
    request = build_request("abcd", system="efg")
    system, user = request.messages
    image = MediaPart("image/png", encode_media(b"x" * 10), "a.png")
    seen = replace(request, messages=(system, replace(user, parts=(*user.parts, image))))

    assert count_media_tokens(seen) == 1_600
    assert estimate_request(seen, CharsPerToken(2.0)) == 1_604
