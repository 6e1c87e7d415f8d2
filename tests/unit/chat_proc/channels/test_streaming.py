from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel
from turn_harness.channels_example import REPLY, channels, sources_list, user_msg

from chat_proc.channels.streaming import CompositeJsonArtifactStreamer, stream_with_channels
from everturn.events.model import ChatDelta
from everturn.models.port import LanguageModel, ModelFailed, PromptMessage, TextPart
from everturn.timeline.sources import Source
from everturn_sdk.channels import ChannelSpec, ChannelSubscribers, DeltaDelivery, EmitDelta
from everturn_testing.models.scripted_model import Fail, Say, Script, ScriptedModel, Think

SYSTEM = PromptMessage("system", (TextPart("You answer in channels."),))
USER = user_msg
SOURCES = [sources_list[0], Source(2, "Second", "https://two.example"), {"title": "a row without sid"}]


class Emitted(list[dict[str, Any]]):
    """An emit function that keeps its deltas and checks that each is a chat.delta event."""

    async def __call__(self, **delta: Any) -> None:
        ChatDelta(**delta)
        self.append(delta)

    def text(self, marker: str) -> str:
        return "".join(delta["text"] for delta in self if delta["marker"] == marker)


@dataclass
class Service:
    model: ScriptedModel
    role: str = ""

    def model_for(self, role: str) -> LanguageModel:
        self.role = role
        return self.model


def service(*scripts: Script, chunk_chars: int = 5) -> Service:
    return Service(ScriptedModel(scripts, chunk_chars=chunk_chars))


def both(emit: Callable[..., Any], subscribers: ChannelSubscribers) -> EmitDelta:
    """What the process of a workflow does with each delta."""
    delivery = DeltaDelivery(emit, subscribers, print)

    async def deliver(**delta: Any) -> None:
        await delivery.deliver(delta, is_field=False)

    return deliver


async def test_a_json_answer_fans_out_to_the_canvas() -> None:
    emit = Emitted()
    reply = (
        '<channel:answer>{"artifactA": "# Title\\nbody", "other": 1}</channel:answer><channel:usage>{}</channel:usage>'
    )

    results = await stream_with_channels(
        svc=service(reply),
        messages=[SYSTEM, USER],
        role="answer.generator.regular",
        channels=[
            ChannelSpec(name="answer", format="json", replace_citations=False, emit_marker="answer"),
            ChannelSpec(name="usage", format="json", replace_citations=False, emit_marker="answer"),
        ],
        emit=emit,
        agent="my.agent",
        artifact_name="my.json.artifact",
        composite_cfg={"artifactA": "path.to.schema"},
        composite_channel="answer",
        composite_marker="canvas",
    )

    assert emit.text("canvas") == "# Title\nbody"
    assert {delta["artifact"] for delta in emit if delta["marker"] == "canvas"} == {"artifactA"}
    assert results[0]["answer"].obj == {"artifactA": "# Title\nbody", "other": 1}
    assert CompositeJsonArtifactStreamer.__name__ == "CompositeJsonArtifactStreamer"


async def test_a_client_finds_the_cited_rows_in_the_pool() -> None:
    answer_text = """
According to the analysis [[S:1]], the platform supports
multi-channel streaming [[S:2,3]]. Cache efficiency results
in up to 60% cost reduction [[S:1]].
"""
    pool = [{"sid": sid, "title": f"Source {sid}", "url": f"https://{sid}.example"} for sid in (1, 2, 3, 4)]

    results, _ = await stream_with_channels(
        svc=service(f"<channel:answer>{answer_text}</channel:answer>"),
        messages=[USER],
        role="answer.generator.regular",
        channels=[ChannelSpec(name="answer")],
        emit=Emitted(),
        sources_list=pool,
    )

    used_sids = results["answer"].used_sources
    assert used_sids == [1, 2, 3]
    assert [row for row in pool if row["sid"] in used_sids] == pool[:3]
    assert results["answer"].raw == answer_text


async def test_a_model_checks_the_json_of_a_channel() -> None:
    class Followups(BaseModel):
        followups: list[str]

    results, _ = await stream_with_channels(
        svc=service('<channel:followup>```json\n{"followups": ["a"]}\n```</channel:followup>'),
        messages=[USER],
        role="r",
        channels=[ChannelSpec("followup", "json", model=Followups)],
        emit=Emitted(),
    )

    assert results["followup"].obj == Followups(followups=["a"])


async def test_what_a_failing_model_wrote_is_kept_and_its_channel_closed() -> None:
    emit = Emitted()
    failing = [Think("hm"), Say("<channel:answer>half [[S:"), Fail(ModelFailed("overloaded", retryable=True))]

    results, meta = await stream_with_channels(
        svc=service(failing),
        messages=[USER],
        role="r",
        channels=[ChannelSpec("answer")],
        emit=emit,
    )

    assert results["answer"].raw == "half [[S:"
    assert not results["answer"].instances[0].complete
    assert emit.text("answer") == "half [[S:"
    assert emit[-1]["completed"]
    error = meta["service_error"]
    assert error is not None
    assert (error["kind"], error["retryable"]) == ("ModelFailed", True)
    assert "overloaded" in error["message"]


async def test_half_a_tag_that_a_failing_model_wrote_is_not_shown() -> None:
    emit = Emitted()
    failing = [Say("<channel:answer>half</channel:an"), Fail(ModelFailed("overloaded", retryable=True))]

    results, _ = await stream_with_channels(
        svc=service(failing), messages=[USER], role="r", channels=[ChannelSpec("answer")], emit=emit
    )

    assert results["answer"].raw == "half"
    assert emit.text("answer") == "half"


async def test_what_emit_raises_ends_the_call() -> None:
    async def emit(**_delta: object) -> None:
        raise ConnectionError("the client is gone")

    with pytest.raises(ConnectionError):
        await stream_with_channels(svc=service(REPLY), messages=[USER], role="r", channels=channels, emit=emit)


async def test_a_reply_past_its_cap_is_cut_and_the_model_is_stopped() -> None:
    svc = service("<channel:answer>" + "x" * 1_000, chunk_chars=10)

    results, meta = await stream_with_channels(
        svc=svc,
        messages=[USER],
        role="r",
        channels=[ChannelSpec("answer")],
        emit=Emitted(),
        max_reply_chars=50,
    )

    assert results["answer"].raw == "x" * 34
    assert meta["capped"]
    assert meta["finish_reason"] is None


async def test_declared_channels_that_do_not_occur_have_empty_results() -> None:
    results, _ = await stream_with_channels(
        svc=service("plain text"), messages=[USER], role="r", channels=channels, emit=Emitted()
    )

    assert {name: result.raw for name, result in results.items()} == dict.fromkeys(
        ["thinking", "answer", "followup", "usage"], ""
    )


@pytest.mark.parametrize(
    ("channels", "composite"),
    [([ChannelSpec("answer"), ChannelSpec("Answer")], None), ([ChannelSpec("answer")], "canvas"), ([], None)],
)
async def test_invalid_channels_are_refused_before_the_call(channels: list[ChannelSpec], composite: str | None) -> None:
    svc = service()

    with pytest.raises(ValueError):
        await stream_with_channels(
            svc=svc, messages=[USER], role="r", channels=channels, emit=Emitted(), composite_channel=composite
        )

    assert svc.model.requests == []


@pytest.mark.parametrize("chunk_chars", [1, 13, 97, 10_000])
async def test_subscribers_get_repeated_channels_one_after_another(chunk_chars: int) -> None:
    heard: list[tuple[int, str]] = []
    bodies = ['{"n": "`0"}', '{"n": "</channel:usage>"}', '{"n": "2"}']

    def listen(*, instance: int, text: str, completed: bool, **_delta: object) -> None:
        heard.append((instance, "end" if completed else text))

    await stream_with_channels(
        svc=service("".join(f"<channel:usage>{body}</channel:usage>\n" for body in bodies), chunk_chars=chunk_chars),
        messages=[SYSTEM, USER],
        role="answer.generator.regular",
        channels=[channels[3]],
        emit=both(Emitted(), ChannelSubscribers().subscribe("usage", listen)),
        agent="my.agent",
        artifact_name="report",
    )

    assert [instance for instance, text in heard if text == "end"] == [0, 1, 2]
    assert heard == sorted(heard, key=lambda part: part[0])
    for number, body in enumerate(bodies):
        assert "".join(text for instance, text in heard if instance == number and text != "end") == body
