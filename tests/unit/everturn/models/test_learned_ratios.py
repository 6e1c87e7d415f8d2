"""Ratios are learnt per model from what providers count."""

from dataclasses import replace

from everturn.models.port import MediaPart, ModelUsage, encode_media
from everturn.models.tokens import CharsPerToken, LearnedRatios
from everturn_testing.models.model_contract import build_request


def test_each_model_has_its_own_ratio() -> None:
    ratios = LearnedRatios()

    for _ in range(30):
        ratios.learn("dense", build_request("x" * 10_000), ModelUsage(input_tokens=5_000))

    assert abs(ratios.of("dense").ratio - 2.0) < 0.01
    assert ratios.of("other") == CharsPerToken()


def test_what_was_estimated_teaches_nothing() -> None:
    ratios = LearnedRatios()

    ratios.learn("m", build_request("x" * 10_000), ModelUsage(input_tokens=5_000, estimated=True))

    assert ratios.of("m") == CharsPerToken()


def test_tokens_of_images_are_not_taken_for_text() -> None:
    request = build_request("x" * 7_000)
    system, user = request.messages
    image = MediaPart("image/png", encode_media(b"x"), "a.png")
    request = replace(request, messages=(system, replace(user, parts=(*user.parts, image))))
    ratios = LearnedRatios()

    for _ in range(30):
        ratios.learn("m", request, ModelUsage(input_tokens=2_000 + 1_600))

    assert abs(ratios.of("m").ratio - 3.5) < 0.1
