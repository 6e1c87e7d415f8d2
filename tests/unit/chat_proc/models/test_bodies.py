"""Bodies of requests are the same JSON, however large they are and however many files they have."""

import json

import pytest

from chat_proc.models.bodies import build_body, refer_to
from everturn.core.threads import ON_LOOP_SIZE
from everturn.models.port import MediaPart, ModelRequest, PromptMessage, TextPart, encode_media


@pytest.mark.parametrize("chars", [1, ON_LOOP_SIZE + 1])
async def test_each_file_stands_where_it_is_referred_to(chars: int) -> None:
    files = [MediaPart("image/png", encode_media(text), name=f"{text!r}.png") for text in (b"one", b"other")]
    text = TextPart('A "quoted" ä\n' * chars)
    request = ModelRequest((PromptMessage("user", (text, *files)),), max_output_tokens=10)

    body = await build_body(
        request,
        lambda: {
            "text": text.text,
            "none": None,
            "files": [{"data": f"data:{file.mime};base64,{refer_to(file.data)}"} for file in (*files, files[0])],
        },
    )

    assert json.loads(body) == {
        "text": text.text,
        "files": [{"data": f"data:image/png;base64,{base64}"} for base64 in ("b25l", "b3RoZXI=", "b25l")],
    }
