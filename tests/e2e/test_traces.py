"""One message through real processes, as an operator sees it: its trace at a collector, its log lines, its metrics."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from helpers import span_names
from helpers.collector import Collector, ReportedSpan
from helpers.sockets import SocketClient
from helpers.waiting import wait_until
from opentelemetry.semconv.schemas import Schemas
from prometheus_client.parser import text_string_to_metric_families

from everturn.core.otlp import SCHEMA_URL
from everturn.core.tracing import TraceContext, build_turn_context
from everturn_local.ports import load_free_port
from everturn_local.supervision.platform import Platform

pytestmark = [pytest.mark.e2e, pytest.mark.sampled, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

CALLER = TraceContext("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7")
QUESTION = "script:traced the-persons-words"
LONG_CONVERSATION = QUESTION + " word" * 24_000
"""Where a request may have 24,000 tokens, the next turn has to make room first."""
SUMMARY = "## Active request\n- the-summarys-words\n## Done\n- all of it\n"


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with Collector() as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(
    tmp_path_factory: pytest.TempPathFactory, make_harness: Callable[[Platform], Any], collector: Collector
) -> AsyncIterator[Any]:
    """An ingress and two workers with telemetry. Leases have their production length: on a busy machine a short one is
    lost, and then a turn has two workers where a test counts one."""
    env = {
        "EVERTURN_MODEL": f"scripted:{Path(__file__).with_name('traced_script.toml')}",
        "EXECUTION_MODE": "bubblewrap",
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_BSP_SCHEDULE_DELAY": "100",
    }
    async with Platform(tmp_path_factory.mktemp("traced"), workers=2, env=env, durable=False) as platform:
        opened = make_harness(platform)
        yield opened
        await opened.quit()


async def send(
    harness: Any, *, trace: TraceContext, text: str = QUESTION, conversation_id: str = "new"
) -> tuple[str, str]:
    """The ids of the conversation and the turn."""
    async with httpx2.AsyncClient(base_url=harness.platform.urls[0]) as http:
        answer = await http.post(
            f"/conversations/default/default/{conversation_id}/messages",
            json={"text": text},
            headers={"traceparent": str(trace)},
        )
    assert answer.status_code == 202, answer.text
    body = answer.json()
    return body["conversation_id"], body["turn_id"]


def named(spans: list[ReportedSpan], name: str, trace: TraceContext) -> list[ReportedSpan]:
    return [span for span in spans if span.name == name and span.trace_id == trace.trace_id]


def load_lines(harness: Any, name: str) -> list[dict[str, Any]]:
    text = (harness.platform.home.logs / f"{name}.log").read_text()
    return [json.loads(line) for line in text.splitlines() if line]


async def test_a_trace_spans_request_queue_model_tool_and_sandbox(harness: Any, collector: Collector) -> None:
    conversation_id, turn_id = await send(harness, trace=CALLER)
    watcher = harness.watch(conversation_id)
    turn = await watcher.wait_ended(turn_id)

    await asyncio.to_thread(collector.wait_for, lambda spans: named(spans, "invoke_agent everturn", CALLER))
    spans = [span for span in collector.spans if span.trace_id == CALLER.trace_id]
    (request,) = [span for span in spans if span.service == "everturn-ingress" and span.parent == CALLER.span_id]
    (work,) = named(spans, "invoke_agent everturn", CALLER)
    first, second = sorted(named(spans, "chat scripted", CALLER), key=lambda span: span.attributes["everturn.round"])
    (tool,) = [span for span in spans if span.name.startswith("execute_tool ")]
    boot, run = named(spans, "sandbox.boot", CALLER)[0], named(spans, "sandbox.run", CALLER)[0]
    (supervisor,) = named(spans, "supervisor.run", CALLER)

    assert turn.status == "completed"
    assert request.name == "POST /conversations/{tenant}/{project}/{conversation_id}/messages"
    assert request.attributes["http.response.status_code"] == 202
    assert (work.service, work.parent, work.links) == ("everturn-worker", request.span_id, ())
    assert work.attributes["gen_ai.conversation.id"] == conversation_id
    assert work.attributes["everturn.turn.outcome"] == "completed"
    assert (first.parent, second.parent, tool.parent) == (work.span_id, work.span_id, work.span_id)
    assert first.attributes["gen_ai.operation.name"] == "chat"
    assert first.attributes["gen_ai.usage.input_tokens"] > first.attributes["gen_ai.usage.output_tokens"] > 0
    assert tool.attributes["gen_ai.tool.name"] == "exec_tools.execute_code_python"
    assert (boot.parent, run.parent, supervisor.parent) == (tool.span_id, tool.span_id, run.span_id)
    assert not any(span.is_error for span in spans)
    said = b"".join(span.raw for span in spans)
    assert b"the-persons-words" not in said
    assert b"the-programs-words" not in said
    assert b"seventeen" not in said
    await harness.check_invariants(conversation_id, watcher)
    await harness.close()


async def test_a_socket_message_has_a_trace_linked_to_the_handshake(harness: Any, collector: Collector) -> None:
    caller = TraceContext("a" * 31 + "2", "b" * 16)
    client = await SocketClient(harness.platform.urls[0]).connect(headers={"traceparent": str(caller)})

    refused = await client.call("chat_message", {"conversation_id": "new", "text": 1})
    accepted = await client.call("chat_message", {"conversation_id": "new", "text": QUESTION})
    await client.sio.disconnect()
    turn_id = accepted["body"]["turn_id"]
    watcher = harness.watch(accepted["body"]["conversation_id"])
    await watcher.wait_ended(turn_id)

    def find_calls(spans: list[ReportedSpan]) -> list[ReportedSpan]:
        found = [span for span in spans if span.links == ((caller.trace_id, caller.span_id),)]
        return found if len(found) == 2 else []

    def find_work(spans: list[ReportedSpan]) -> list[ReportedSpan]:
        return [span for span in spans if span.attributes.get("everturn.turn.id") == turn_id and span.links == ()]

    calls = await asyncio.to_thread(collector.wait_for, find_calls)
    first, second = sorted(calls, key=lambda span: span.attributes["rpc.response.status_code"])
    await asyncio.to_thread(
        collector.wait_for, lambda spans: [each for each in find_work(spans) if each.name.startswith("invoke_agent")]
    )
    (work,) = [span for span in find_work(collector.spans) if span.name.startswith("invoke_agent")]
    assert (refused["status"], accepted["status"]) == (422, 202)
    assert [span.name for span in calls] == ["chat_message", "chat_message"]
    assert [span.attributes["rpc.response.status_code"] for span in (first, second)] == ["202", "422"]
    assert (first.service, first.parent, first.is_error) == ("everturn-ingress", "", False)
    assert (work.trace_id, work.parent) == (first.trace_id, first.span_id)
    (line,) = [line for line in load_lines(harness, "ingress-1") if line.get("trace_id") == first.trace_id]
    assert (line["event"], line["tenant"], line["turn_id"]) == ("Accepted a message", "default", turn_id)
    await harness.check_invariants(accepted["body"]["conversation_id"], watcher)
    await harness.close()


async def test_a_takeover_is_a_span_linked_to_the_killed_workers_span(harness: Any, collector: Collector) -> None:
    caller = TraceContext("a" * 31 + "1", "b" * 16)
    conversation_id, turn_id = await send(harness, trace=caller)
    watcher = harness.watch(conversation_id)
    (tool,) = await asyncio.to_thread(
        collector.wait_for, lambda spans: named(spans, "execute_tool exec_tools.execute_code_python", caller)
    )
    await watcher.wait_text(turn_id, "answer")

    os.kill(int(tool.instance.rpartition(":")[2]), signal.SIGKILL)
    turn = await watcher.wait_ended(turn_id)

    (after,) = await asyncio.to_thread(collector.wait_for, lambda spans: named(spans, "invoke_agent everturn", caller))
    assert turn.status == "completed"
    assert after.instance != tool.instance
    assert after.attributes["everturn.turn.attempt"] == 1
    assert after.links == ((caller.trace_id, tool.parent),)
    assert tool.parent == build_turn_context(turn_id, 1, caller).span_id
    assert after.span_id == build_turn_context(turn_id, 2, caller).span_id
    await harness.check_invariants(conversation_id, watcher)
    await harness.close()


async def test_log_lines_name_request_and_turn_but_no_content(harness: Any) -> None:
    caller = TraceContext("c" * 32, "d" * 16)
    conversation_id, turn_id = await send(harness, trace=caller)
    await harness.watch(conversation_id).wait_ended(turn_id)

    names = {
        "trace_id": caller.trace_id,
        "tenant": "default",
        "conversation_id": conversation_id,
        "turn_id": turn_id,
    }
    (accepted,) = [line for line in load_lines(harness, "ingress-1") if line.get("trace_id") == caller.trace_id]
    assert accepted["event"] == "Accepted a message"
    assert accepted == accepted | names

    def load_own() -> list[dict[str, Any]]:
        workers = [line for name in ("worker-1", "worker-2") for line in load_lines(harness, name)]
        return [line for line in workers if line.get("turn_id") == turn_id]

    # A client may see the end before its worker has said that it leaves the turn.
    await wait_until(lambda: "Stopped running a turn" in [line["event"] for line in load_own()])
    own = load_own()
    for line in own:
        assert line == line | names
    assert "the-persons-words" not in json.dumps([accepted, *own])
    await harness.close()


async def test_a_worker_exports_metrics_to_prometheus(harness: Any) -> None:
    port = load_free_port()
    await harness.platform.stop_part("worker-1")
    await harness.platform.restart("worker-2", extra_env={"METRICS_LISTEN": f"127.0.0.1:{port}"})
    conversation_id, turn_id = await send(harness, trace=TraceContext("e" * 32, "f" * 16))
    await harness.watch(conversation_id).wait_ended(turn_id)

    async with httpx2.AsyncClient() as http:
        page = (await http.get(f"http://127.0.0.1:{port}/metrics")).text
        ready = await http.get(f"http://127.0.0.1:{port}/readyz")
        lane = (await http.get(f"{harness.platform.urls[0]}/metrics")).text

    figures = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }
    assert figures["everturn_turns_ended_total", "completed"] == 1
    assert sum(value for key, value in figures.items() if key[0] == "everturn_turn_queue_seconds_count") == 1
    assert figures["everturn_turn_first_token_seconds_count",] == 1
    assert figures["everturn_turn_first_answer_seconds_count",] == 1
    assert figures["everturn_round_seconds_count",] == 2
    assert figures["everturn_tool_seconds_count", "exec_tools.execute_code_python", "ok"] == 1
    assert figures["everturn_sandbox_boot_seconds_count", "bubblewrap"] == 1
    assert figures["everturn_sandbox_run_seconds_count", "bubblewrap", "ok"] == 1
    assert 0 < figures["everturn_turn_first_token_seconds_sum",] <= figures["everturn_turn_seconds_sum", "completed"]
    assert 'everturn_queued_turns{lane="privileged"} 0.0' in lane
    assert "ingress_stream_lag_seconds_count" in lane
    assert (ready.status_code, ready.json()["status"]) == (200, "ready")
    await harness.close()


async def test_summaries_and_titles_are_in_the_span_of_their_turn(
    harness: Any, collector: Collector, tmp_path: Path
) -> None:
    script, config = tmp_path / "summaries.toml", tmp_path / "everturn.toml"
    script.write_text(f"[[scripts]]\nwhen = ''\n[[scripts.rounds]]\nreply = '''{SUMMARY}'''\n")
    config.write_text(f'[models.roles]\nsummary = "scripted:{script}"\ntitle = "scripted:{script}"\n')
    env = {"EVERTURN_CONFIG": str(config), "CONTEXT_MAX_TOKENS": "24000"}
    conversation_id, turn_id = await send(harness, trace=TraceContext("1" * 32, "2" * 16), text=LONG_CONVERSATION)
    watcher = harness.watch(conversation_id)
    await watcher.wait_ended(turn_id)
    await asyncio.gather(*(harness.platform.restart(name, extra_env=env) for name in ("worker-1", "worker-2")))
    caller, titled = TraceContext("3" * 32, "4" * 16), TraceContext("5" * 32, "6" * 16)

    _, turn_id = await send(harness, trace=caller, conversation_id=conversation_id)
    await watcher.wait_ended(turn_id)
    other_id, first_id = await send(harness, trace=titled)
    await harness.watch(other_id).wait_ended(first_id)

    (work,) = await asyncio.to_thread(collector.wait_for, lambda spans: named(spans, "invoke_agent everturn", caller))
    (compaction, *_) = named(collector.spans, "compaction", caller)
    calls = [span for span in named(collector.spans, "chat scripted", caller) if span.parent == compaction.span_id]
    assert compaction.parent == work.span_id
    assert compaction.attributes["everturn.compaction.reason"] in ("soft", "hard")
    assert compaction.attributes["everturn.compaction.before_tokens"] > 10_000
    assert calls[0].attributes["everturn.model.role"] == "summary"
    assert calls[0].attributes["gen_ai.usage.input_tokens"] > calls[0].attributes["gen_ai.usage.output_tokens"] > 0
    assert calls[0].attributes["gen_ai.conversation.id"] == conversation_id
    (first,) = await asyncio.to_thread(collector.wait_for, lambda spans: named(spans, "invoke_agent everturn", titled))
    inside = [span for span in named(collector.spans, "chat scripted", titled) if span.parent == first.span_id]
    (title,) = [span for span in inside if span.attributes["everturn.model.role"] == "title"]
    assert title.attributes["gen_ai.conversation.id"] == other_id
    assert title.attributes["gen_ai.usage.input_tokens"] > title.attributes["gen_ai.usage.output_tokens"] > 0
    traces = {caller.trace_id, titled.trace_id}
    said = b"".join(span.raw for span in collector.spans if span.trace_id in traces)
    assert b"the-summarys-words" not in said
    assert b"word word" not in said
    await harness.check_invariants(conversation_id, watcher)
    await harness.close()


async def test_every_attribute_is_pinned_and_published_or_our_own(harness: Any, collector: Collector) -> None:
    names = {name for span in collector.spans for name in span.attributes}
    requests = [span for span in collector.spans if "http.request.method" in span.attributes]

    assert names - span_names.OWN <= span_names.CONVENTIONAL
    assert {name for name in names if name.startswith("everturn.")} <= span_names.OWN
    assert span_names.load_published() >= span_names.CONVENTIONAL | span_names.RESOURCE
    assert requests
    for span in requests:
        assert span.attributes["url.path"].startswith("/")
        assert span.attributes["url.scheme"] == "http"
        assert span.attributes["http.route"] in span.name
    for span in collector.spans:
        assert span.resource.keys() >= span_names.RESOURCE
        assert span.resource["service.version"] == version("everturn")
        assert span.schema_urls == (SCHEMA_URL, SCHEMA_URL)
    assert SCHEMA_URL in {schema.value for schema in Schemas}


async def test_a_remote_doctor_reports_problems_of_the_platform(harness: Any) -> None:
    url = harness.platform.urls[0]
    well = await ask_doctor(url)

    await harness.platform.stop_part("redis")
    # An ingress keeps what it found for a second.
    await wait_until(lambda: httpx2.get(f"{url}/readyz").json()["status"] != "ready")
    ill = await ask_doctor(url)
    await harness.platform.restart("redis")

    assert (well[0], "PROBLEM" in well[1]) == (0, False), well[1]
    assert "runs programs in bubblewrap" in well[1]
    assert ill[0] == 1
    assert "PROBLEM  redis" in ill[1]
    assert "-> check the Redis server" in ill[1]


async def ask_doctor(url: str) -> tuple[int, str]:
    """Its exit status, and what it said."""
    command = [sys.executable, "-P", "-m", "everturn_client.cli", "--url", url, "doctor"]
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    _, said = await process.communicate()
    return process.returncode or 0, said.decode()
