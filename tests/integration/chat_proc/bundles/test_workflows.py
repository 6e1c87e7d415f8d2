"""Workflows of authors in a real process: turns of the loop with its host, and code that crashes, hangs or is wrong."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs
from turn_harness.checks import check_conversation
from turn_harness.harness import Bench, until
from turn_harness.replies import answer, call
from turn_harness.tools import DemoTool

from chat_proc.agent.kit import TurnLimits
from chat_proc.bundles.host.host import BundleHost, open_bundle_host
from chat_proc.bundles.host.host_process import BundleCode, HostOptions
from everturn.core.errors import Invalid
from everturn.timeline.blocks import CompletionBody, ToolResultBody
from everturn.timeline.turns import Outcome, SignalKind

pytestmark = [pytest.mark.sandbox, pytest.mark.sampled]

SEEDS = """
from everturn_sdk import *

class MyWorkflow(BaseWorkflow):
    def on_bundle_load(self):
        self.index = {"backups": "They are encrypted."}

    async def pre_run_hook(self):
        self.hooked = "pre"

    def before_round(self, number):
        print("round", number, flush=True)

    async def after_tool(self, use):
        print("after", use.tool_id, use.status, flush=True)

    def on_turn_end(self):
        print("the turn ends", self.hooked)

    async def _search_knowledge(self, query, limit=5):
        return [{"path": "ks:docs/backups.md", "about": query}]

    def _read_knowledge(self, path):
        return f"{path}: {self.index['backups']}"

    async def run(self, payload):
        scratchpad = self.scratchpad
        react = await self.build_react(
            scratchpad=scratchpad,
            tools_module="my_bundle.tools_descriptor",
            skills_module="my_bundle.skills_descriptor",
            knowledge_space_fn=self._search_knowledge,   # optional
            knowledge_read_fn=self._read_knowledge,      # optional
        )
        result = await react.run(payload)
        return result
"""
TOOLS = 'TOOLS_SPECS = [{"ref": "tools/desk.py", "alias": "desk"}]\n'
DESK = (
    'from everturn_sdk import tool\n\n@tool(effect="pure")\ndef look() -> str:\n    """Looks."""\n    return "seen"\n'
)
FILES = {
    "workflow.py": SEEDS,
    "tools_descriptor.py": TOOLS,
    "skills_descriptor.py": "SKILLS_SPECS = []\n",
    "tools/desk.py": DESK,
}
HELLO = answer("Hello!")
Open = Callable[..., Awaitable[BundleHost]]


def write(body: str, above: str = "") -> dict[str, str]:
    """A workflow with this code in `run`."""
    lines = "\n".join(f"        {line}" for line in body.strip().splitlines())
    imports = "import asyncio, os, time\nfrom everturn_sdk import *\n\n"
    return {
        "workflow.py": f"{imports}{above}\n\nclass Desk(BaseWorkflow):\n    async def run(self, payload):\n{lines}\n"
    }


@pytest.fixture
async def open_code(options: HostOptions) -> AsyncGenerator[Open]:
    async with AsyncExitStack() as stack:

        async def open_one(files: Mapping[str, str], **changes: Any) -> BundleHost:
            code = BundleCode("my-bundle", "0" * 64, {name: text.encode() for name, text in files.items()})
            return await stack.enter_async_context(open_bundle_host(code, replace(options, **changes)))

        yield open_one


async def play(host: BundleHost, *scripts: Any, text: str = "Hi", **more: Any) -> Bench:
    bench = Bench(*scripts, authored=host, tools=[DemoTool()], **more)
    await bench.say(text)
    await bench.work()
    await check_conversation(bench)
    return bench


async def test_the_example_of_the_seeds_runs_as_it_stands(open_code: Open):
    host = await open_code(FILES)
    search = call("react.search_knowledge", {"query": "backups", "limit": 5})

    with capture_logs() as logs:
        bench = await play(host, search, call("react.read", {"paths": ["ks:docs/backups.md"]}), HELLO)
        await until(lambda: any(log.get("text") == "the turn ends pre" for log in logs))

    said = [str(log.get("text")) for log in logs]
    assert {"round 1", "after react.search_knowledge ok", "after react.read ok", "round 3"} <= set(said)
    results = [block.body.text for block in bench.blocks if isinstance(block.body, ToolResultBody)]
    assert results[0] == '[{"path":"ks:docs/backups.md","about":"backups"}]'
    assert results[1].endswith("docs/backups.md: They are encrypted.")
    assert bench.texts(CompletionBody) == ["Hello!"]
    assert [tool.tool_id for tool in host.description.tools] == ["desk.look"]


CHANNELS = """
svc, sources_list = self.models, [{"sid": 1, "title": "Report", "url": "https://one.example/r"}]
system_msg, user_msg = {"role": "system", "content": "Use channels."}, {"role": "user", "content": payload.text}
heard = []

async def _emit_wrapper(**delta):
    print("shown", delta["channel"], repr(delta["text"]), flush=True)

def _usage_json_fanout(*, text, **delta):
    heard.append(text)

async def _hang(**delta):
    await self.feedback("ok")

channels = [
    ChannelSpec(
        name="answer",
        format="markdown",
        replace_citations=True,
        emit_marker="answer",
    ),
    ChannelSpec(
        name="usage",
        format="json",
        replace_citations=False,
        emit_marker="answer",
    ),
]
# Attach a subscriber to the "usage" channel for side-effect fanout
subscribers = ChannelSubscribers().subscribe("usage", _usage_json_fanout).subscribe("usage", _hang)
results, meta = await stream_with_channels(
    svc=svc,
    messages=[system_msg, user_msg],
    role="answer.generator.regular",
    channels=channels,
    emit=_emit_wrapper,
    agent="my.agent",
    artifact_name="report",
    sources_list=sources_list,
    subscribers=subscribers,
    return_full_raw=True,
)
answer_raw = results["answer"].raw
used_sources = results["answer"].used_sources
service_err = (meta or {}).get("service_error")
value = await self.models.structured_call([user_msg], {"type": "object", "properties": {"n": {"type": "integer"}}})
await self.emit("Seen.", marker="timeline_text")
await self.feedback("ok", "Checked.", confidence=0.5)
return f"{answer_raw} {used_sources} {service_err} {''.join(heard)} {value}"
"""


async def test_channels_values_texts_and_feedback_pass_through_the_process(open_code: Open):
    host = await open_code(write(CHANNELS))
    reply = '<channel:answer>See [[S:1]].</channel:answer><channel:usage>{"sids": [1]}</channel:usage>'

    with capture_logs() as logs:
        bench = await play(host, reply, '{"n": 3}')
        await until(lambda: any("self.feedback can't be called" in str(log.get("text")) for log in logs))

    assert bench.texts(CompletionBody) == ["See [[S:1]]. [1] None {\"sids\": [1]} {'n': 3}"]
    view = bench.state().turns[0]
    assert {text.text for text in view.texts} >= {"See [Report](https://one.example/r).", '{"sids": [1]}', "Seen."}
    assert [each.text for each in bench.platform.conversations[bench.conversation_id].feedback] == ["Checked."]
    assert any(str(log.get("text")).startswith("shown answer 'See ") for log in logs)


async def test_steps_run_in_the_process_and_their_results_return(open_code: Open):
    body = """
async def add(a, b):
    return {"sum": a + b}
react = await self.build_react()
first = await self.step("add", add, 1, 2, effect="pure")
slow = await self.step("blocking", time.sleep, 0.01, effect="pure")
try:
    await self.step("add", add, 1, 2)
except WorkflowError as error:
    twice = str(error)
try:
    await self.step("long", lambda: "x" * 70_000, effect="pure")
except StepFailed as error:
    long = str(error)
await react.run(payload)
await react.run("Now say goodbye.")
return f"{first} {slow} {twice} {long}"
"""
    bench = await play(await open_code(write(body)), HELLO, answer("Goodbye!"))

    assert bench.texts(CompletionBody) == [
        "Hello!",
        "{'sum': 3} None Two steps of the workflow have the key 'add'. Give each step of a turn a key of its own. The "
        "step 'long' has failed: ValueError: its result has 70002 bytes as JSON; at most 65536 can be recorded",
    ]


COUNT = """
def count(name):
    with open(f"{os.environ['HOME']}/{name}", "a+") as file:
        file.write("x")
        file.seek(0)
        return len(file.read())
"""


async def test_a_process_that_crashes_in_a_step_is_replaced(open_code: Open):
    body = """
def crash(name):
    if count(name) == 1:
        os._exit(7)
    return count(name)
react = await self.build_react()
await react.run(payload)
idempotent = await self.step("a", crash, "a", effect="idempotent")
try:
    await self.step("b", crash, "b")
except StepAmbiguous:
    return f"{idempotent} {count('b')}"
"""
    bench = await play(await open_code(write(body, COUNT)), HELLO)

    assert bench.exits[0].outcome is Outcome.COMPLETED
    assert bench.texts(CompletionBody) == ["Hello!", "3 2"]
    assert len(bench.model.requests) == 1


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("os._exit(7)", "Its process ended."),
        ("time.sleep(60)", "Its process ended."),
        ("raise KeyError('x')", "It raised an exception."),
        ("raise SystemExit(3)", "It raised an exception."),
        ("return 42", "It raised an exception."),
        ("await self.build_react(tools_module='other')", "It raised an exception."),
        ("await self._port.ask('segment', {'number': 7, 'text': None, 'serves': []})", "It raised an exception."),
        ("await self._port.ask('step_end', {'key': 'x'})", "It raised an exception."),
        ("return ''", "It gave no answer."),
    ],
)
async def test_a_workflow_that_fails_ends_its_turn_once(open_code: Open, body: str, why: str):
    host = await open_code(write(body), blocked_after_s=0.6)

    bench = await play(host)

    (end,) = bench.exits
    assert end.error is not None
    assert end.error.type.endswith("workflow-failed")
    assert (end.error.detail or "").startswith(why)


SEND = """
def send(data):
    for descriptor in range(3, 64):
        try:
            os.write(descriptor, data)
        except OSError:
            continue
"""


@pytest.mark.parametrize(
    "body",
    [
        "send(b'oops' * 9)",
        "send(bytes([0x7f, 255, 255, 255]))",
        "send(b'\\x00\\x00\\x00\\x04oops')",
        "send(encode_message(Claim(number=1, request=1)))",
        "end = encode_message(Ended(number=1, status='ok', content_bytes=2))\n"
        "send(b'\\x80\\x00\\x00\\x0242' + end)\nawait asyncio.sleep(60)",
        "send(encode_message(Ended(number=1, status='ok', content_bytes=2)))\nawait asyncio.sleep(60)",
        "for n in range(99): send(encode_message(Ask(number=1, request=n, what='fetch_ctx', arguments={})))",
        "return 'x' * (100 << 20)",
        "return 'x' * (8 << 30)",
    ],
)
async def test_what_is_no_message_or_no_answer_ends_the_turn_once(open_code: Open, body: str):
    above = f"{SEND}\nfrom everturn_sdk.protocol import Ask, Claim, Ended, encode_message"
    host = await open_code(write(body, above))

    bench = await play(host, limits=TurnLimits(wall_time_s=60))

    (end,) = bench.exits
    assert end.error is not None
    assert end.error.type.endswith("workflow-failed")


HOOKS = """
class Desk(BaseWorkflow):
    async def pre_run_hook(self):
        {pre}

    async def on_turn_end(self):
        {post}

    async def run(self, payload):
        return await (await self.build_react()).run(payload)
"""


@pytest.mark.parametrize(
    "does", ["raise SystemExit(3)", "os._exit(7)", "while True: pass", "await asyncio.sleep(3600)"]
)
@pytest.mark.parametrize("hook", ["pre", "post"])
async def test_a_hook_that_fails_ends_the_turn_once(open_code: Open, hook: str, does: str):
    code = HOOKS.format(**{"pre": "pass", "post": "pass", hook: does})
    host = await open_code(
        {"workflow.py": f"import asyncio, os\nfrom everturn_sdk import *\n{code}"}, blocked_after_s=0.6
    )

    bench = await play(host, *[HELLO] * (hook == "post"), limits=TurnLimits(wall_time_s=3), grace_s=1)

    (end,) = bench.exits
    if hook == "post":
        assert bench.state().turns[0].answer == "Hello!"
    else:
        assert end.error is not None


@pytest.mark.parametrize(
    ("files", "where"),
    [
        ({"workflow.py": SEEDS + "\nprint('key', get_secret('b:key'))"}, "import"),
        ({"workflow.py": SEEDS.replace("self.index =", "print(get_secret('b:key')); self.index =")}, "on_bundle_load"),
        ({"workflow.py": SEEDS.replace("self.hooked =", "print(get_secret('b:key')); self.hooked =")}, "hook"),
        ({"workflow.py": SEEDS.replace("return result", "print(get_secret('b:key')); return get_secret('b:key')")}, ""),
        ({"workflow.py": SEEDS.replace("return result", "raise ValueError(get_secret('b:key'))")}, "raises"),
        ({"workflow.py": SEEDS.replace('"about": query', '"about": get_secret("b:key")')}, "searches"),
        ({"workflow.py": SEEDS.replace('f"{path}: {', "f\"{get_secret('b:key')}: {")}, "reads"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
async def test_secrets_of_a_workflow_are_hidden_wherever_it_writes_them(
    options: HostOptions, files: dict[str, str], where: str
):
    code = BundleCode(
        "my-bundle",
        "0" * 64,
        {name: text.encode() for name, text in {**FILES, **files}.items()},
        secrets={"key": "sesame-sesame"},
    )
    with capture_logs() as logs:
        async with open_bundle_host(code, options) as host:
            search = call("react.search_knowledge", {"query": "backups"})
            bench = await play(host, search, call("react.read", {"paths": ["ks:docs/backups.md"]}), HELLO)

    written = str(logs) + str([block.body for block in bench.blocks])
    assert "sesame" not in written
    assert "[redacted]" in written


async def test_a_workflow_that_never_returns_is_ended_with_what_the_agent_said(open_code: Open):
    host = await open_code(write("await (await self.build_react()).run(payload)\nawait asyncio.sleep(3600)"))

    bench = await play(host, HELLO, limits=TurnLimits(wall_time_s=0.3), grace_s=0.5)

    assert [(end.outcome, end.cut_reason) for end in bench.exits] == [(Outcome.CUT, "server_error")]
    assert bench.state().turns[0].answer == "Hello!"


async def test_a_cancel_ends_the_code_and_the_process_serves_on(open_code: Open):
    host = await open_code(
        write("""
if payload.text == "Hi":
    try:
        print("it waits")
        await asyncio.sleep(3600)
    finally:
        print("it was ended")
return f"You said {payload.text}."
""")
    )
    bench = Bench(authored=host)
    await bench.say("Hi")
    with capture_logs() as logs:
        worker = bench.hire()
        working = asyncio.create_task(worker.work())
        await until(lambda: any(log.get("text") == "it waits" for log in logs))
        await bench.signal(SignalKind.CANCEL)
        await working
        await until(lambda: any(log.get("text") == "it was ended" for log in logs))
    await bench.say("Again")
    await bench.work()

    assert [end.outcome for end in bench.exits] == [Outcome.CANCELLED, Outcome.COMPLETED]
    assert bench.texts(CompletionBody) == ["You said Again."]


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"workflow.py": "x = 1"}, "workflow.py has no class that extends BaseWorkflow."),
        (
            {"workflow.py": SEEDS + "\nclass Other(MyWorkflow):\n    pass\n"},
            "workflow.py has 2 classes that extend BaseWorkflow: MyWorkflow, Other. Keep one of them.",
        ),
        (
            {"workflow.py": "from everturn_sdk import *\nclass A(BaseWorkflow):\n    def run(self, payload): pass\n"},
            "workflow.py: A needs a method `async def run(self, payload)`.",
        ),
        (
            {"workflow.py": "from everturn_sdk import *\nclass A(BaseWorkflow):\n    async def run(self): pass\n"},
            "workflow.py: A.run must have the parameters self and payload.",
        ),
        (
            {
                "workflow.py": SEEDS.replace(
                    'self.index = {"backups": "They are encrypted."}', "raise OSError('no disk')"
                )
            },
            "OSError: no disk (workflow.py, line 6)",
        ),
        ({"workflow.py": "import nothing_of_this_name"}, "ModuleNotFoundError: No module named 'nothing_of_this_name'"),
    ],
)
async def test_a_workflow_that_can_not_be_described_is_refused(open_code: Open, files: dict[str, str], why: str):
    with pytest.raises(Invalid) as refused:
        await open_code(files)

    assert refused.value.detail.startswith(why)
