"""`models check` and `models list` as operators run them: a process of their own, against a real server."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from helpers.model_answers import PERSON, RIGHT, write_reply
from helpers.provider import Answer, Received, WireProvider, build_openai_events, run_provider

from chat_proc.model_check.tasks import TASKS
from everturn.models.port import CodecName
from everturn_local.ports import load_free_port
from everturn_testing.models.scripted_model import Call, Script

pytestmark = pytest.mark.sampled

KEY = "sk-of-the-test-server"
CONFIG = """
[models.endpoints.local]
protocol = "openai"
base_url = "{url}/v1"
key_env = "LOCAL_API_KEY"

[models.cards."local:*"]
context_tokens = 32_000
images = true
price = {{ input = 1.0, output = 2.0 }}
"""


@dataclass
class Ended:
    status: int
    out: str
    err: str


def build_events(script: Script) -> tuple[str, ...]:
    """A reply in OpenAI's format."""
    if isinstance(script, str):
        return build_openai_events(script)
    calls = [
        {"index": n, "id": f"call{n}", "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for n, call in enumerate(script)
        if isinstance(call, Call)
    ]
    whole: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": {"tool_calls": calls}, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
        {"choices": [], "usage": {"prompt_tokens": 2_000, "completion_tokens": 30, "total_tokens": 2_030}},
    ]
    chunks = [{"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", **each} for each in whole]
    return (*(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks), "data: [DONE]\n\n")


def reply_rightly(received: Received) -> Answer | None:
    """What a model does that understands each task."""
    if received.method == "GET":
        return None
    asked = json.dumps(received.body["messages"], ensure_ascii=False)
    number = next((task.number for task in TASKS if json.dumps(task.prompt, ensure_ascii=False)[1:-1] in asked), None)
    codec: CodecName = "native" if received.body.get("tools") else "channels" if "<channel:" in asked else "json"
    script = PERSON if number is None else write_reply(codec, RIGHT[number])
    return Answer([event.encode() for event in build_events(script)])


async def start(folder: Path, url: str, *arguments: str, config: str = CONFIG) -> asyncio.subprocess.Process:
    file = folder / "everturn.toml"
    file.write_text(config.format(url=url))
    environment = {
        "PATH": os.defpath,
        "EVERTURN_CONFIG": str(file),
        "EVERTURN_MODEL": "local:qwen3",
        "LOCAL_API_KEY": KEY,
    }
    pipe = asyncio.subprocess.PIPE
    argv = (sys.executable, "-P", "-m", "chat_proc", "models", *arguments)
    return await asyncio.create_subprocess_exec(*argv, env=environment, stdout=pipe, stderr=pipe)


async def run(folder: Path, *arguments: str, choose: Callable[[Received], Answer | None] = reply_rightly) -> Ended:
    async with run_provider(WireProvider(choose)) as server:
        process = await start(folder, server.url, *arguments)
        out, err = await process.communicate()
    assert process.returncode is not None
    return Ended(process.returncode, out.decode(), err.decode())


async def test_a_model_behind_a_server_is_checked_without_a_database(tmp_path: Path) -> None:
    ended = await run(tmp_path, "check", "--json")

    result = json.loads(ended.out)
    assert [task["reason"] for task in result["tasks"] if task["status"] != "ok"] == []
    assert ended.status == 0
    assert (result["model"], result["recommended_codec"]) == ("local:qwen3", "native")
    assert result["context_tokens"] == 32_000
    assert result["usage"]["cost_known"] and result["usage"]["cost_usd"] > 0
    assert all(each["first_token_s"] is not None for each in result["codecs"])


async def test_a_server_that_rejects_the_key_ends_the_check(tmp_path: Path) -> None:
    body = json.dumps({"error": {"code": "invalid_api_key", "message": f"Incorrect API key: {KEY}"}}).encode()

    ended = await run(tmp_path, "check", "local:other", choose=lambda _: Answer([body], status=401))

    assert ended.status == 1
    assert "1 channels: error: unauthorized:" in ended.out
    assert "Incorrect API key: [redacted]" in ended.out
    assert "not tried" in ended.out and KEY not in ended.out + ended.err
    assert ended.out.splitlines()[-1] == "The check ended early, so no codec is recommended."


async def test_ctrl_c_prints_what_was_found(tmp_path: Path) -> None:
    replies = iter(range(3))
    silent = Answer([b": wait\n\n"], hang=True)

    def choose(received: Received) -> Answer | None:
        return reply_rightly(received) if next(replies, None) is not None else silent

    async with run_provider(WireProvider(choose)) as server:
        process = await start(tmp_path, server.url, "check")
        assert process.stderr is not None
        for _ in range(3):
            await process.stderr.readline()
        process.send_signal(signal.SIGINT)
        out, err = await process.communicate()

    assert process.returncode == 130
    assert err.decode().endswith("channels, 4 two independent calls: not finished\nInterrupted.\n")
    assert "In total: 3 calls" in out.decode()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("offline", "There is nothing to check. offline is the built-in demo, which can't be checked. Name"),
        ("qwen3", "The argument NAME: 'qwen3' names no provider or endpoint"),
    ],
)
async def test_what_can_not_be_checked_is_a_wrong_argument(tmp_path: Path, name: str, says: str) -> None:
    ended = await run(tmp_path, "check", name)

    assert (ended.status, ended.out) == (2, "")
    assert says in ended.err


async def test_models_are_listed_with_their_roles_and_facts(tmp_path: Path) -> None:
    ended = await run(tmp_path, "list")

    assert ended.status == 0
    assert "decision   local:qwen3 (EVERTURN_MODEL=local:qwen3)" in ended.out
    assert "endpoint local: openai at http://127.0.0.1:" in ended.out and "/v1, LOCAL_API_KEY\n" in ended.out
    assert "model local:qwen3: context of 32,000 tokens, no known limit on replies; images; 1 and 2 USD" in ended.out
    assert KEY not in ended.out + ended.err


@pytest.mark.parametrize("before", [0, 60, 150, 170, 190, 240])
async def test_a_list_shows_no_part_of_a_key_that_a_server_repeats(tmp_path: Path, before: int) -> None:
    body = json.dumps({"error": {"message": f"{'x' * before} Incorrect API key: {KEY}"}}).encode()
    config = CONFIG.replace("context_tokens = 32_000", "")

    async with run_provider(WireProvider(lambda _: Answer([body], status=401))) as server:
        process = await start(tmp_path, server.url, "list", config=config)
        out, _ = await process.communicate()

    assert b"can't be read" in out and KEY[:6].encode() not in out


async def test_a_list_says_that_a_server_can_not_be_asked(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{load_free_port()}"
    process = await start(tmp_path, url, "list", config=CONFIG.replace("context_tokens = 32_000", ""))
    out, err = await process.communicate()

    assert (process.returncode, err) == (0, b"")
    (line,) = (line for line in out.decode().splitlines() if line.startswith("model local:qwen3: "))
    assert line.startswith("model local:qwen3: context of 128,000 tokens (assumed), ")
    assert line.endswith("; its server's list of models can't be read: ConnectError: All connection attempts failed")
