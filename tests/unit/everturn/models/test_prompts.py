"""Prompts are values in order."""

from everturn.models.port import MediaPart, ModelRequest, PromptMessage, TextPart, encode_media


def test_a_request_keeps_messages_and_parts_in_order() -> None:
    parts = (TextPart("a", cache_point=True), MediaPart("image/png", encode_media(b"\x89"), "chart.png"), TextPart("b"))
    request = ModelRequest((PromptMessage("system", parts[:1]), PromptMessage("user", parts[1:])), max_output_tokens=9)

    assert [part for message in request.messages for part in message.parts] == list(parts)


def test_nothing_is_cached_unless_asked_for() -> None:
    assert not TextPart("a").cache_point
