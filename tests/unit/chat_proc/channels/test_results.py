import pytest
from pydantic import BaseModel

from chat_proc.channels.streaming import build_result
from everturn_sdk.channels import ChannelInstance, ChannelResult, ChannelSpec


class Usage(BaseModel):
    sids: list[int]


def test_a_text_channel_joins_its_occurrences() -> None:
    instances = (ChannelInstance("a [[S:1]]", complete=True), ChannelInstance("b", complete=False))

    result = build_result(ChannelSpec("answer"), instances, (1,))

    assert result == ChannelResult("a [[S:1]]b", None, [1], instances, None)


def test_json_that_occurred_once_is_the_value() -> None:
    instances = [ChannelInstance('\n{"sids": [1, 2]}\n', complete=True)]

    assert build_result(ChannelSpec("usage", "json"), instances, ()).obj == {"sids": [1, 2]}
    assert build_result(ChannelSpec("usage", "json", model=Usage), instances, ()).obj == Usage(sids=[1, 2])


def test_a_channel_that_did_not_occur_has_an_empty_result() -> None:
    assert build_result(ChannelSpec("usage", "json", model=Usage), (), ()) == ChannelResult()


@pytest.mark.parametrize(
    ("raws", "error"),
    [
        (['{"sids": "x"}'], "invalid: sids: Input should be a valid list"),
        (["[1]"], "invalid: usage: Input should be a valid dictionary"),
        (["{"], "not_json: "),
        (['{"sids": []} more'], "text_after_object: more"),
        (['{"sids": []}', '{"sids": []}'], "multiple_channel_instances:2"),
    ],
)
def test_an_invalid_value_has_an_error(raws: list[str], error: str) -> None:
    instances = [ChannelInstance(raw, complete=True) for raw in raws]

    result = build_result(ChannelSpec("usage", "json", model=Usage), instances, ())

    assert result.obj is None
    assert result.error is not None
    assert result.error.startswith(error)
    assert result.raw == "".join(raws)
