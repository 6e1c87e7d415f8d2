import pytest

from chat_proc.channels.streaming import MalformedMessage, build_request
from everturn.models.port import ModelRequest, PromptMessage, TextPart


def test_messages_and_mappings_become_one_request() -> None:
    system = PromptMessage("system", (TextPart("s", cache_point=True),))
    user = {"role": "user", "content": "u"}
    assistant = {"role": "assistant", "content": [{"type": "text", "text": "a"}, "b"]}

    request = build_request([system, user, assistant], max_output_tokens=9)

    assert request == ModelRequest(
        (
            system,
            PromptMessage("user", (TextPart("u"),)),
            PromptMessage("assistant", (TextPart("a"), TextPart("b"))),
        ),
        9,
    )


@pytest.mark.parametrize(
    "message", [{"role": "tool", "content": "x"}, {"content": "x"}, {"role": "user"}, {"role": "user", "content": [{}]}]
)
def test_a_message_without_role_or_text_is_refused(message: dict[str, object]) -> None:
    with pytest.raises(MalformedMessage):
        build_request([message], max_output_tokens=9)
