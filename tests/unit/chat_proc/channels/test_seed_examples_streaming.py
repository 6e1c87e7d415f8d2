"""The streaming examples of the documents: channels declared, one call streamed, citations, fan-out to canvas."""

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest
from turn_harness.channels_example import (
    ANSWER,
    CALL,
    FOLLOWUPS,
    REPLY,
    SHOWN,
    THOUGHT,
    USAGE,
    channels,
    sources_list,
    system_msg,
    user_msg,
)
from turn_harness.harness import Bench
from turn_harness.replies import answer, call
from turn_harness.tools import FindTool

from chat_proc.channels.streaming import CompositeJsonArtifactStreamer, stream_with_channels
from everturn.events.materialized import build_derived_artifacts
from everturn.models.port import LanguageModel
from everturn_sdk.channels import ChannelSpec, ChannelSubscribers, DeltaDelivery, EmitDelta
from everturn_testing.models.scripted_model import SCRIPTED_USAGE, ScriptedModel
from everturn_testing.turns.timelines import MemoryTimelines

USED = '{"input_tokens": 12, "sids": [1]}'


class Service:
    def __init__(self, reply: str, chunk_chars: int) -> None:
        self.model = ScriptedModel([reply], chunk_chars=chunk_chars)
        self.role = ""

    def model_for(self, role: str) -> LanguageModel:
        self.role = role
        return self.model


class Deltas(list[dict[str, Any]]):
    async def __call__(self, **delta: Any) -> None:
        self.append(delta)

    def text(self, marker: str, artifact: str | None = None) -> str:
        wanted = [one for one in self if one["marker"] == marker and artifact in (None, one["artifact"])]
        return "".join(one["text"] for one in wanted)


def both(emit: Callable[..., Any], subscribers: ChannelSubscribers) -> EmitDelta:
    """What the process of a workflow does with each delta."""
    delivery = DeltaDelivery(emit, subscribers, print)

    async def deliver(**delta: Any) -> None:
        await delivery.deliver(delta, is_field=False)

    return deliver


@pytest.mark.parametrize("chunk_chars", [1, 6, 1000])
async def test_four_channels_with_a_subscriber_that_records_usage(chunk_chars: int) -> None:
    _emit_wrapper = Deltas()
    recorded: list[str] = []

    def _record_usage_sids(*, text: str, completed: bool, **_: object) -> None:
        recorded.append("!" if completed else text)

    svc = Service(REPLY, chunk_chars)
    results, meta = await stream_with_channels(
        svc=svc, emit=both(_emit_wrapper, ChannelSubscribers().subscribe("usage", _record_usage_sids)), **CALL
    )

    assert (results["answer"].raw, results["answer"].used_sources) == (ANSWER, [1])
    assert (_emit_wrapper.text("answer", "response"), _emit_wrapper.text("thinking")) == (SHOWN + USED, THOUGHT)
    assert (results["followup"].obj, results["usage"].obj) == ({"followups": list(FOLLOWUPS)}, USAGE)
    assert json.loads("".join(recorded).removesuffix("!")) == USAGE
    assert recorded[-1] == "!"
    assert (meta["service_error"], meta["raw"], meta["finish_reason"]) == (None, REPLY, "stop")
    assert (meta["usage"], meta["agent"]) == (asdict(SCRIPTED_USAGE), "my.react.agent")
    assert svc.role == "answer.generator.regular"
    assert [message.role for message in svc.model.requests[0].messages] == ["system", "user"]


async def test_an_answer_and_its_usage_under_one_marker() -> None:
    _emit_wrapper = Deltas()
    fanned_out: list[str] = []

    async def _usage_json_fanout(*, text: str, **_: object) -> None:
        fanned_out.append(text)

    subscribers = ChannelSubscribers().subscribe("usage", _usage_json_fanout)
    results, meta = await stream_with_channels(
        svc=Service(REPLY, 9), emit=both(_emit_wrapper, subscribers), **CALL | {"channels": [channels[1], channels[3]]}
    )

    assert (results["answer"].raw, results["answer"].used_sources, meta["service_error"]) == (ANSWER, [1], None)
    assert results["usage"].obj == USAGE == json.loads("".join(fanned_out))
    assert {one["artifact"] for one in _emit_wrapper} == {"response"}
    assert "<channel:thinking>" in meta["outside_text"]


@pytest.mark.parametrize("chunk_chars", [1, 6, 1000])
async def test_a_json_answer_is_fanned_out_to_canvas_by_attribute(chunk_chars: int) -> None:
    emit_delta = Deltas()
    written = {"artifactA": "# Findings [[S:2]]", "other": [1, 2]}
    reply = f"<channel:answer>{json.dumps(written)}</channel:answer><channel:usage>{{}}</channel:usage>"

    channels = [
        ChannelSpec(name="answer", format="json", replace_citations=False, emit_marker="answer"),
        ChannelSpec(name="usage", format="json", replace_citations=False, emit_marker="answer"),
    ]
    results, _ = await stream_with_channels(
        svc=Service(reply, chunk_chars),
        messages=[system_msg, user_msg],
        role="answer.generator.regular",
        channels=channels,
        emit=emit_delta,
        agent="my.agent",
        artifact_name="my.json.artifact",
        sources_list=sources_list,
        composite_cfg={"artifactA": "path.to.schema"},
        composite_channel="answer",
        composite_marker="canvas",
    )

    assert results["answer"].obj == written
    assert emit_delta.text("canvas", "artifactA") == "# Findings [Streaming](https://two.example/s)"
    assert {one["artifact"] for one in emit_delta if one["marker"] == "canvas"} == {"artifactA"}
    assert CompositeJsonArtifactStreamer.__name__ == "CompositeJsonArtifactStreamer"


@pytest.mark.parametrize(
    ("token", "sids"),
    [("[[S:1]]", [1]), ("[[S:1,3]]", [1, 3]), ("[[S:2-4]]", [2, 3]), ("[[S:2,3]]", [2, 3]), ("[[S:1-4]]", [1, 2, 3])],
)
async def test_the_forms_of_a_citation_token(token: str, sids: list[int]) -> None:
    """Source 4 is an image, which is shown and never evidence."""
    emit = Deltas()

    results, _ = await stream_with_channels(
        svc=Service(f"<channel:answer>The company was founded in 2015 {token}.</channel:answer>", 3),
        messages=[system_msg, user_msg],
        role="answer.generator.regular",
        channels=[ChannelSpec(name="answer")],
        emit=emit,
        sources_list=sources_list,
    )

    assert results["answer"].used_sources == sids
    assert results["answer"].raw == f"The company was founded in 2015 {token}."
    for sid in sids:
        assert str(sources_list[sid - 1]["url"]) in emit.text("answer")


async def test_in_an_html_channel_citations_become_sup_elements() -> None:
    emit = Deltas()

    await stream_with_channels(
        svc=Service("<channel:page><p>So [[S:1,3]]</p></channel:page>", 4),
        messages=[system_msg, user_msg],
        role="answer.generator.regular",
        channels=[ChannelSpec(name="page", format="html", emit_marker="canvas")],
        emit=emit,
        sources_list=sources_list,
    )

    assert emit.text("canvas").startswith('<p>So <sup class="cite" data-sids="1,3"><a href="https://one.example/r"')


async def test_undeclared_channels_are_harmless() -> None:
    emit = Deltas()
    reply = "<channel:mystery>who?</channel:mystery><channel:Answer>Here.</channel:Answer></channel:thinking>"

    results, meta = await stream_with_channels(
        svc=Service(reply, 2),
        messages=[system_msg, user_msg],
        role="answer.generator.regular",
        channels=[ChannelSpec(name="answer")],
        emit=emit,
        sources_list=sources_list,
    )

    assert (results["answer"].raw, meta["service_error"]) == ("Here.", None)
    assert "who?" in meta["outside_text"]


async def test_a_client_finds_the_sources_of_an_answer_in_the_pool() -> None:
    answer_text = (
        "According to the analysis [[S:1]], the platform supports\nmulti-channel streaming [[S:2,3]]. "
        "Cache efficiency results\nin up to 60% cost reduction [[S:1]]."
    )
    urls = [f"https://a.example/{n}" for n in range(1, 5)]
    bench = Bench(call("demo.find", {"urls": urls}), answer(answer_text), tools=[FindTool()])
    await bench.say("Tell me.")
    await bench.work()
    sources = await MemoryTimelines(bench.platform).load_sources(
        bench.platform.conversations[bench.conversation_id].principal, bench.conversation_id
    )
    artifacts = build_derived_artifacts(bench.turns.read(bench.conversation_id), sources)

    timeline_json = artifacts.model_dump(mode="json", by_alias=True)["conv.timeline.v1"]
    used_sids = bench.state().turns[0].sources_used
    pool = timeline_json["sources_pool"]
    refs = [s for s in pool if s["sid"] in used_sids]

    assert used_sids == (1, 2, 3)
    assert [ref["url"] for ref in refs] == urls[:3]
    assert all(ref["used"] for ref in refs) and not pool[3]["used"]
