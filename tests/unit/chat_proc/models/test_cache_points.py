"""A request carries at most four cache points: the first and the last ones."""

from chat_proc.models.anthropic import keep_last_cache_points
from everturn.models.port import MediaPart, PromptMessage, TextPart, encode_media


def marked_texts(messages: tuple[PromptMessage, ...]) -> list[str]:
    parts = (part for message in messages for part in message.parts)
    return [part.text for part in parts if isinstance(part, TextPart) and part.cache_point]


def test_four_points_or_fewer_stay_as_they_are() -> None:
    messages = (PromptMessage("user", tuple(TextPart(str(n), cache_point=n % 2 == 0) for n in range(8))),)

    assert keep_last_cache_points(messages) == messages


def test_of_more_points_the_first_and_the_last_three_stay() -> None:
    messages = tuple(PromptMessage("user", (TextPart(str(n), cache_point=True),)) for n in range(7))

    assert marked_texts(keep_last_cache_points(messages)) == ["0", "4", "5", "6"]


def test_an_empty_text_and_media_take_no_point() -> None:
    media = MediaPart("image/png", encode_media(b""), "a.png")
    parts = (TextPart("", cache_point=True), media, *(TextPart(str(n), cache_point=True) for n in range(4)))

    kept = keep_last_cache_points((PromptMessage("user", parts),))

    assert marked_texts(kept) == ["0", "1", "2", "3"]
    assert media in kept[0].parts
