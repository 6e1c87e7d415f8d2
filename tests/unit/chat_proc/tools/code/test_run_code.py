"""The code tool: contract in, envelope out, kept files as artifacts. The sandbox itself has its own tests."""

import asyncio
import json
import threading
from dataclasses import replace
from datetime import datetime

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import ValidationError
from turn_harness.checks import check_conversation
from turn_harness.harness import Bench
from turn_harness.programs import ScriptedTool, build_program_tools
from turn_harness.replies import answer, call

from chat_proc.catalog.tool import ToolOutcome, ToolRegistry
from chat_proc.channels.codec import build_parameters
from chat_proc.sandbox.port import (
    ConnectionRecord,
    FileHash,
    ProgramExit,
    RunArtifact,
    RunError,
    RunRecord,
    RunRequest,
    RunResult,
    ToolCaller,
)
from chat_proc.sandbox.receipts import ReceiptSigner, verify_receipt
from chat_proc.sandbox.results import build_broken
from chat_proc.tools.code import run_code
from chat_proc.tools.code.run_code import RunCodeTool, build_code_spec
from chat_proc.worker.runner import MAX_ATTEMPTS
from chat_proc.workspace.loading import WorkspaceHistory
from chat_proc.workspace.local import MAX_DELTA_BYTES
from everturn.core.clock import SystemClock
from everturn.core.errors import Invalid
from everturn.core.logging import Redactor
from everturn.events.turn_view import try_build_step_detail
from everturn.execution.messages import GatewayCall, Posture, RunLimits, ToolReply
from everturn.execution.profiles import ExecutionProfile
from everturn.files.model import ArtifactKind
from everturn.timeline.blocks import ToolCallBody, ToolResultBody, canonical_json
from everturn.timeline.turns import TurnStatus
from everturn.turns.model import Effect
from everturn_testing.timeline import TimelineBuilder, build_file
from everturn_testing.turns.live_turn import RecordingTurn

PNG = b"\x89PNG\r\n\x1a\n...."
POSTURE = Posture(
    launcher="bubblewrap",
    runtime="bwrap 0.8",
    outer_uid=1001,
    user="uid 1001",
    network="none",
    memory="1 GiB",
    processes="64",
    disk="tmpfs",
    seccomp="on",
)


class RecordingSandbox:
    """Answers every run with files for its contract, or with the given failure."""

    posture = POSTURE

    def __init__(
        self, bodies: dict[str, bytes] | None = None, error: RunError | None = None, printed: str = ""
    ) -> None:
        self.bodies = bodies or {}
        self.error = error
        self.printed = printed
        self.connections: tuple[ConnectionRecord, ...] = ()
        self.calls: list[GatewayCall] = []
        self.stops: list[asyncio.Event | None] = []
        self.requests: list[RunRequest] = []
        self.replies: list[object] = []

    async def run(self, request: RunRequest, call_tool: ToolCaller, *, stop: asyncio.Event | None = None) -> RunResult:
        self.requests.append(request)
        self.stops.append(stop)
        self.replies += [await call_tool(call) for call in self.calls]
        written = tuple(
            RunArtifact(item.filepath, item.description, item.visibility, len(body), "", body)
            for item in request.contract
            if (body := self.bodies.get(item.filepath)) is not None
        )
        return RunResult(
            ok=self.error is None,
            artifacts=written,
            error=self.error,
            exit=ProgramExit("exit", 0),
            report_text="The program finished successfully."
            if self.error is None
            else f"The run failed: {self.error.message}",
            user_out_tail=self.printed,
            runtime_err_tail="a warning\n",
            limits_hit=(),
            duration_ms=7,
            record=RunRecord("0" * 64, request.timeout_s, RunLimits(), POSTURE, connections=self.connections),
        )


@pytest.fixture
def history(stored) -> WorkspaceHistory:
    return WorkspaceHistory(stored.artifacts)


@pytest.fixture
def timeline(objects) -> TimelineBuilder:
    csv = build_file("turn_1", "sales.csv", b"a,b", mime="text/csv")
    objects.stored[csv.object_key] = b"a,b"
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Chart it", csv)
    timeline.start_round()
    return timeline


async def test_a_run_stores_its_files_and_shows_its_output(call_tool, timeline, objects, history) -> None:
    sandbox = RecordingSandbox({"outputs/chart.png": PNG, "files/table.csv": b"a\n"}, printed="RESULT {}\n")
    contract = [
        {"filepath": "outputs/chart.png", "description": "The chart"},
        {"filepath": "files/table.csv", "visibility": "internal"},
    ]

    outcome = await call_tool(
        RunCodeTool(sandbox, objects, history, build_program_tools()),
        timeline,
        {"contract": contract, "timeout_s": 30},
        code="print(1)",
    )

    assert outcome.status == "ok"
    assert outcome.text == (
        "The program finished successfully.\n--- printed ---\nRESULT {}\n--- errors and warnings ---\na warning"
    )
    chart, table = outcome.artifacts
    assert (chart.ref, chart.kind, chart.mime) == ("fi:turn_1.outputs/chart.png", ArtifactKind.OUTPUT, "image/png")
    assert (chart.visibility, chart.description) == ("external", "The chart")
    assert (table.ref, table.kind, table.visibility) == ("fi:turn_1.files/table.csv", ArtifactKind.FILE, "internal")
    assert ":chatbot:exec:" in chart.rn
    assert objects.stored[chart.object_key] == PNG


async def test_the_sandbox_gets_the_program_and_its_files(call_tool, timeline, objects, history) -> None:
    sandbox = RecordingSandbox()

    await call_tool(
        RunCodeTool(sandbox, objects, history, build_program_tools()),
        timeline,
        {"timeout_s": 30},
        code="  print(1)\n",
        call_id="call_ab",
    )

    (request,) = sandbox.requests
    assert (request.program, request.timeout_s, request.turn_id) == ("  print(1)\n", 30.0, "turn_1")
    assert request.execution_id == "exec_ab"
    assert request.inputs == {"turn_1/attachments/sales.csv": b"a,b"}
    assert request.capability.grants == ()


async def test_a_program_calls_the_tools_that_programs_are_offered(call_tool, timeline, objects, history) -> None:
    strange = ScriptedTool("web.find", untrusted=True, act=lambda _: ToolOutcome("ok", "", value=["row"]))
    loops_own = ScriptedTool("react.read", in_programs=False)
    tool = RunCodeTool(sandbox := RecordingSandbox(), objects, history, build_program_tools([strange, loops_own]))
    sandbox.calls = [GatewayCall(1, "web.find", {"text": "x"})]

    outcome = await call_tool(tool, timeline, {}, code="...", call_id="call_1", live=(live := RecordingTurn()))

    (grant,) = sandbox.requests[0].capability.grants
    assert grant.tool_id == "web.find"
    assert sandbox.replies == [ToolReply(1, True, ["row"])]
    assert live.steps == [("web.find", "started"), ("web.find", "completed")]
    assert [record.call_id for record in outcome.records] == ["call_1-1", "call_1-1"]
    assert outcome.untrusted
    assert "- web.find ok: tc:turn_1.call_1-1.result" in outcome.text
    assert "`await web.find(text: str = '')`" in tool.spec.guide


async def test_a_run_whose_files_can_not_be_stored_keeps_its_outcome(call_tool, timeline, objects, history) -> None:
    class FailingSandbox(RecordingSandbox):
        async def run(self, request, call_tool, *, stop=None) -> RunResult:
            objects.down = True
            return await super().run(request, call_tool, stop=stop)

    send = ScriptedTool("mail.send", effect=Effect.IRREVERSIBLE)
    sandbox = FailingSandbox({"outputs/a.csv": b"x\n", "outputs/b.csv": b"y\n"}, printed="y" * 30_000 + "end")
    sandbox.calls = [GatewayCall(1, "mail.send", {"text": "hi"})]
    tool = RunCodeTool(sandbox, objects, history, build_program_tools([send]))
    contract = [{"filepath": "outputs/a.csv"}, {"filepath": "outputs/b.csv"}]

    outcome = await call_tool(tool, timeline, {"contract": contract}, code="...", call_id="call_1")

    assert (outcome.status, outcome.artifacts) == ("ok", ())
    assert [record.call_id for record in outcome.records] == ["call_1-1", "call_1-1"]
    assert "yend" in outcome.text
    for name in ("outputs/a.csv", "outputs/b.csv", "longer output of the program"):
        assert f"Not saved: {name}. The file store is not available now." in outcome.text


async def test_a_file_store_that_never_answers_does_not_lose_the_outcome(
    call_tool, timeline, objects, history, monkeypatch
) -> None:
    async def save(key: str, data: bytes) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(run_code, "STORING_S", 0.1)
    monkeypatch.setattr(objects, "save", save)
    tool = RunCodeTool(RecordingSandbox({"outputs/a": b"x"}), objects, history, build_program_tools())

    async with asyncio.timeout(10):
        outcome = await call_tool(tool, timeline, {"contract": [{"filepath": "outputs/a"}]}, code="...")

    assert "Not saved: outputs/a." in outcome.text


def test_without_tools_for_programs_none_are_taught(objects, history) -> None:
    guide = RunCodeTool(RecordingSandbox(), objects, history, build_program_tools()).spec.guide

    assert "await alias" not in guide


async def test_a_stop_reaches_the_sandbox(call_tool, timeline, objects, history) -> None:
    stop = asyncio.Event()

    await call_tool(
        RunCodeTool(sandbox := RecordingSandbox(), objects, history, build_program_tools()),
        timeline,
        {},
        code="...",
        stop=stop,
    )

    assert sandbox.stops == [stop]


async def test_a_failed_run_is_an_error_that_keeps_what_was_written(call_tool, timeline, objects, history) -> None:
    error = RunError("missing_output_files", "b.csv is missing", "outputs")
    sandbox = RecordingSandbox({"outputs/a.csv": b"x\n"}, error)
    contract = [{"filepath": "outputs/a.csv"}, {"filepath": "outputs/b.csv"}]

    outcome = await call_tool(
        RunCodeTool(sandbox, objects, history, build_program_tools()), timeline, {"contract": contract}, code="..."
    )

    assert outcome.status == "error"
    assert "b.csv is missing" in outcome.text
    assert [artifact.ref for artifact in outcome.artifacts] == ["fi:turn_1.outputs/a.csv"]
    assert outcome.data["run"]["error"]["code"] == "missing_output_files"


async def test_the_envelope_can_be_stored_in_a_block(call_tool, timeline, objects, history) -> None:
    outcome = await call_tool(
        RunCodeTool(RecordingSandbox(), objects, history, build_program_tools()), timeline, {}, code="pass"
    )

    body = ToolResultBody(tool_id="x.y", status="ok", text="", data=outcome.data)
    run = json.loads(canonical_json(body))["data"]["run"]
    assert run["record"]["posture"]["launcher"] == "bubblewrap"
    assert "receipt" not in run


@pytest.mark.parametrize(
    ("filepath", "given", "ref"),
    [
        ("chart.png", "chart.png", "fi:turn_1.outputs/chart.png"),
        ("turn_1/outputs/chart.png", "turn_1/outputs/chart.png", "fi:turn_1.outputs/chart.png"),
        ("fi:turn_1.files/chart.png", "files/chart.png", "fi:turn_1.files/chart.png"),
    ],
)
async def test_a_contract_path_is_where_the_program_writes_it(
    call_tool, timeline, objects, history, filepath: str, given: str, ref: str
) -> None:
    sandbox = RecordingSandbox({given: PNG})

    outcome = await call_tool(
        RunCodeTool(sandbox, objects, history, build_program_tools()),
        timeline,
        {"contract": [{"filepath": filepath}]},
        code="...",
    )

    assert [artifact.ref for artifact in outcome.artifacts] == [ref]


@pytest.mark.parametrize(
    "paths",
    [["../x"], ["turn_0/outputs/x"], ["/x"], ["attachments/x"], ["outputs/a", "a"], ["outputs/in\u202evoice"]],
)
async def test_a_bad_contract_is_refused_before_anything_runs(
    call_tool, timeline, objects, history, paths: list[str]
) -> None:
    sandbox = RecordingSandbox()
    contract = [{"filepath": path} for path in paths]

    outcome = await call_tool(
        RunCodeTool(sandbox, objects, history, build_program_tools()), timeline, {"contract": contract}, code="..."
    )

    assert outcome.status == "error"
    assert outcome.text.startswith("The program was not run: ")
    assert sandbox.requests == []


async def test_a_call_without_a_program_is_refused(call_tool, timeline, objects, history) -> None:
    outcome = await call_tool(
        RunCodeTool(RecordingSandbox(), objects, history, build_program_tools()), timeline, {}, code=" \n"
    )

    assert "no program" in outcome.text


async def test_long_output_is_kept_at_its_end_and_the_text_is_bounded(call_tool, timeline, objects, history) -> None:
    error = RunError("program_error", "x" * 30_000, "program.py")
    sandbox = RecordingSandbox(error=error, printed="y" * 30_000 + "end")

    outcome = await call_tool(RunCodeTool(sandbox, objects, history, build_program_tools()), timeline, {}, code="...")

    assert len(outcome.text) < 24_000
    assert "yend" in outcome.text
    assert "characters left out" in outcome.text


@pytest.mark.parametrize(
    "params",
    [{"contract": [{"filepath": "a"}] * 33}, {"timeout_s": 0}, {"timeout_s": 301}, {"contract": {"filepath": "a"}}],
)
async def test_parameters_out_of_range_are_refused(call_tool, timeline, objects, history, params) -> None:
    with pytest.raises(ValidationError):
        await call_tool(
            RunCodeTool(RecordingSandbox(), objects, history, build_program_tools()), timeline, params, code="pass"
        )


async def test_a_missing_path_is_reported_first(call_tool, timeline, objects, history) -> None:
    sandbox = RecordingSandbox()

    outcome = await call_tool(
        RunCodeTool(sandbox, objects, history, build_program_tools()),
        timeline,
        {},
        code='open("turn_0/files/a.csv"); open("turn_1/outputs/x")',
    )

    assert outcome.text.startswith(
        "The program names turn_0/files/a.csv, which does not exist. "
        'To list the files of that turn: react.pull {"paths": ["fi:turn_0.files/"]}.\n'
    )
    assert len(sandbox.requests) == 1
    assert "turn_1/outputs/x" not in outcome.text


async def test_a_file_without_room_in_the_workspace_is_reported(call_tool, timeline, objects, history) -> None:
    big = build_file("turn_1", "big", b"x", kind=ArtifactKind.OUTPUT).model_copy(update={"size": MAX_DELTA_BYTES - 3})
    timeline.result("call_0", "exec_tools.execute_code_python", "ok", big)
    sandbox = RecordingSandbox({"outputs/a": b"12", "outputs/b": b"12"})
    contract = [{"filepath": "outputs/a"}, {"filepath": "outputs/b"}]

    outcome = await call_tool(
        RunCodeTool(sandbox, objects, history, build_program_tools()), timeline, {"contract": contract}, code="pass"
    )

    assert [artifact.filename for artifact in outcome.artifacts] == ["a"]
    assert "Not saved: outputs/b." in outcome.text


@pytest.mark.parametrize("contract", [{"filepath": "outputs/a.csv"}, "outputs/a.csv", [{"path": "outputs/a.csv"}]])
def test_an_invalid_contract_is_reported_by_name(objects, history, contract: object) -> None:
    registry = ToolRegistry([RunCodeTool(RecordingSandbox(), objects, history, build_program_tools())])

    with pytest.raises(Invalid, match="contract"):
        registry.check_params("exec_tools.execute_code_python", {"contract": contract})


async def test_calls_of_a_program_are_on_the_timeline(history) -> None:
    send = ScriptedTool("mail.send", effect=Effect.IRREVERSIBLE)
    sandbox = RecordingSandbox()
    sandbox.calls = [GatewayCall(n, "mail.send", {"text": "hi"}) for n in (1, 2)]
    bench = Bench(call("exec_tools.execute_code_python", {}, code="..."), answer("Done."))
    tools = build_program_tools([send], bench.platform)
    bench.registry = ToolRegistry([RunCodeTool(sandbox, bench.objects, history, tools)])
    await bench.say("Send it twice.")

    await bench.work()

    await check_conversation(bench)
    bodies = [block.body for block in bench.blocks if isinstance(block.body, ToolResultBody)]
    assert [(body.tool_id, body.status, body.parent is None) for body in bodies] == [
        ("exec_tools.execute_code_python", "ok", True),
        ("mail.send", "ok", False),
        ("mail.send", "ok", False),
    ]
    assert send.done == 2
    shown = str(bench.model.requests[-1].messages)
    assert "- mail.send ok: tc:" in shown
    assert "said" not in shown


@pytest.mark.parametrize("died", ["turn.in_tool", "turn.before_c2", "turn.after_c2"])
async def test_a_run_has_one_receipt_even_if_its_worker_dies(history, died: str) -> None:
    bench = Bench(call("exec_tools.execute_code_python", {}, code="print(1)"), answer("Done."))
    key = Ed25519PrivateKey.generate()
    signer = ReceiptSigner(key, bench.clock, Redactor())
    tool = RunCodeTool(RecordingSandbox(), bench.objects, history, build_program_tools(), receipts=signer)
    bench.registry = ToolRegistry([tool])
    await bench.say("Print it.")

    await bench.hire(failpoint=f"{died}:1:raise").work()
    bench.expire_lease()
    await bench.work()

    await check_conversation(bench)
    [turn] = bench.state().turns
    [step] = turn.steps
    [record] = bench.turns.read(bench.conversation_id).turns
    detail = try_build_step_detail(record, step.step, tenant="t", project="p")
    assert detail is not None
    payload = verify_receipt(detail.model_dump_json().encode(), {signer.key_id: key.public_key()})
    [result] = [block for block in bench.blocks if isinstance(block.body, ToolResultBody)]
    assert (payload["call_id"], payload["turn_id"]) == (result.call_id, turn.turn_id)
    assert payload["conversation_id"] == bench.conversation_id


class FixedSandbox:
    """Every run ends with this result."""

    posture, limits = POSTURE, RunLimits()

    def __init__(self, result: RunResult) -> None:
        self.result = result

    async def run(self, request: RunRequest, call_tool: ToolCaller, *, stop: asyncio.Event | None = None) -> RunResult:
        return self.result


class ThreadClock(SystemClock):
    """Remembers which thread asks for the time."""

    def __init__(self) -> None:
        self.threads: list[int] = []

    def now(self) -> datetime:
        self.threads.append(threading.get_ident())
        return super().now()


LOST = build_broken(RunRequest("e", "t", "", ()), RunLimits(), RunError("sandbox_failed", "gone", "sandbox"))


@pytest.mark.parametrize(("files", "other_thread"), [(40, False), (41, True)])
async def test_a_receipt_of_many_files_does_not_keep_turns_waiting(
    call_tool, timeline, objects, history, files: int, other_thread: bool
) -> None:
    listed = tuple(FileHash(f"turn_1/attachments/{number}", 1, "0" * 64) for number in range(files))
    result = replace(LOST, record=replace(LOST.record, posture=POSTURE, inputs=listed[1:], outputs=listed[:1]))
    signer = ReceiptSigner(Ed25519PrivateKey.generate(), clock := ThreadClock(), Redactor())
    tool = RunCodeTool(FixedSandbox(result), objects, history, build_program_tools(), receipts=signer)

    outcome = await call_tool(tool, timeline, {}, code="pass")

    payload = outcome.data["run"]["receipt"]["payload"]
    assert len(payload["inputs"] + payload["outputs"]) == files
    began, ended = clock.threads
    assert (began != ended) is other_thread


async def test_a_run_of_which_nobody_knows_what_it_did_has_no_receipt(call_tool, timeline, objects, history) -> None:
    signer = ReceiptSigner(Ed25519PrivateKey.generate(), SystemClock(), Redactor())
    tool = RunCodeTool(FixedSandbox(LOST), objects, history, build_program_tools(), receipts=signer)

    outcome = await call_tool(tool, timeline, {}, code="pass")

    assert outcome.data["run"]["error"]["code"] == "sandbox_failed"
    assert "receipt" not in outcome.data["run"]


PROFILES = {
    "small": ExecutionProfile(denied_tools=("lab_tools.*",), description="Plain calculations"),
    "large": ExecutionProfile(limits=RunLimits(memory_bytes=4 << 30)),
}


async def test_a_call_chooses_a_profile_and_the_first_is_the_default(call_tool, timeline, objects, history) -> None:
    tool = RunCodeTool(sandbox := RecordingSandbox(), objects, history, build_program_tools(), PROFILES)

    for params in ({}, {"profile": "large"}):
        await call_tool(tool, timeline, params, code="pass")

    assert [request.profile for request in sandbox.requests] == ["small", "large"]


async def test_another_profile_is_refused_with_the_names_of_those_there_are(objects, history) -> None:
    registry = ToolRegistry([RunCodeTool(RecordingSandbox(), objects, history, build_program_tools(), PROFILES)])

    with pytest.raises(Invalid) as refused:
        registry.check_params("exec_tools.execute_code_python", {"profile": "huge"})

    assert "there is no profile 'huge'. The profiles are: small, large." in refused.value.detail
    with pytest.raises(Invalid, match=r"'larg'\. Did you mean large\?"):
        registry.check_params("exec_tools.execute_code_python", {"profile": "larg"})


async def test_the_guide_lists_profiles_only_if_there_is_a_choice(objects, history) -> None:
    several = RunCodeTool(RecordingSandbox(), objects, history, build_program_tools(), PROFILES).spec
    alone = RunCodeTool(RecordingSandbox(), objects, history, build_program_tools()).spec

    assert "`small`: Plain calculations (1,024 MiB of memory" in several.guide
    assert "`large`: (4,096 MiB of memory" in several.guide
    assert "profile" not in alone.guide
    assert "profile" not in alone.params.model_fields


async def test_a_run_has_the_time_limit_of_its_profile(call_tool, timeline, objects, history) -> None:
    profiles = {"brief": ExecutionProfile(timeout_s=20), "long": ExecutionProfile(timeout_s=900)}
    tool = RunCodeTool(sandbox := RecordingSandbox(), objects, history, build_program_tools(), profiles)

    for params in ({}, {"timeout_s": 15}, {"profile": "long"}, {"profile": "long", "timeout_s": 800}):
        await call_tool(tool, timeline, params, code="pass")
    refused = await call_tool(tool, timeline, {"timeout_s": 30}, code="pass")

    assert [request.timeout_s for request in sandbox.requests] == [20, 15, 60, 800]
    assert (refused.status, refused.text) == (
        "error",
        "The program was not run: timeout_s is 30; the profile brief allows at most 20.",
    )
    assert "seconds, at most 900." in tool.spec.guide
    assert "timeout_s of at most 20" in tool.spec.guide
    assert tool.spec.timeout_s > 900
    alone = RunCodeTool(sandbox, objects, history, build_program_tools(), {"brief": profiles["brief"]}).spec
    assert "at most 20." in alone.guide
    assert alone.params().timeout_s == 20


@pytest.mark.parametrize(
    ("later", "ran"),
    [
        ({"large": PROFILES["large"], "small": PROFILES["small"]}, ["small"]),
        ({"small": PROFILES["small"]}, ["small"]),
        ({"large": PROFILES["large"]}, []),
    ],
)
async def test_a_repeated_call_has_the_profile_that_was_recorded(
    history, later: dict[str, ExecutionProfile], ran: list[str]
) -> None:
    bench = Bench(call("exec_tools.execute_code_python", {}, code="..."), answer("Done."))
    sandbox, tools = RecordingSandbox(), build_program_tools()
    bench.registry = ToolRegistry([RunCodeTool(sandbox, bench.objects, history, tools, PROFILES)])
    await bench.say("Compute it.")
    await bench.hire(failpoint="turn.in_tool:1:raise").work()
    bench.expire_lease()
    bench.registry = ToolRegistry([RunCodeTool(sandbox, bench.objects, history, tools, later)])

    await bench.work()

    assert [request.profile for request in sandbox.requests] == ran
    (asked,) = [block.body for block in bench.blocks if isinstance(block.body, ToolCallBody)]
    assert asked.params == {"profile": "small"}
    (result,) = [block.body for block in bench.blocks if isinstance(block.body, ToolResultBody)]
    # The other profile may have had a network.
    assert result.status == ("ok" if ran else "ambiguous")
    assert ran or "this worker can't repeat it. The parameters of exec_tools.execute_code_python" in result.text
    assert ran or "there is no profile 'small'. The profiles are: large." in result.text


async def test_a_call_given_up_without_its_profile_may_have_taken_effect(history) -> None:
    bench = Bench(call("exec_tools.execute_code_python", {}, code="..."), answer("Done."))
    sandbox, tools = RecordingSandbox(), build_program_tools()
    bench.registry = ToolRegistry([RunCodeTool(sandbox, bench.objects, history, tools, PROFILES)])
    await bench.say("Compute it.")
    for _ in range(MAX_ATTEMPTS):
        await bench.hire(failpoint="turn.in_tool:1:raise").work()
        bench.expire_lease()
    bench.registry = ToolRegistry([RunCodeTool(sandbox, bench.objects, history, tools, {"large": PROFILES["large"]})])

    await bench.work()

    (result,) = [block.body for block in bench.blocks if isinstance(block.body, ToolResultBody)]
    assert result.status == "ambiguous"
    assert bench.turn_rows[0].status is TurnStatus.FAILED


@pytest.mark.parametrize("profiles", [None, {"brief": ExecutionProfile(timeout_s=20)}])
async def test_the_name_of_the_only_profile_is_accepted_but_not_described(objects, history, profiles) -> None:
    tool = RunCodeTool(RecordingSandbox(), objects, history, build_program_tools(), profiles)
    registry, (name,) = ToolRegistry([tool]), profiles or ["default"]

    params = registry.check_params(tool.spec.tool_id, {"profile": name, "prog_name": "sum"})

    assert params == registry.check_params(tool.spec.tool_id, {"prog_name": "sum"})
    assert list(build_parameters(tool.spec)["properties"]) == ["contract", "prog_name", "timeout_s", "code"]
    for given, said in (
        ({"profile": "huge"}, f"no profile 'huge'. The profiles are: {name}."),
        ({"mood": 1}, "mood: "),
    ):
        with pytest.raises(Invalid) as refused:
            registry.check_params(tool.spec.tool_id, given)
        assert said in refused.value.detail


async def test_what_a_program_got_from_a_host_is_untrusted(call_tool, timeline, objects, history) -> None:
    tool = RunCodeTool(sandbox := RecordingSandbox(), objects, history, build_program_tools())

    for sandbox.connections, untrusted in (
        ((ConnectionRecord("a.example.com", 443, refused={"not_allowed": 1}),), False),
        ((ConnectionRecord("a.example.com", 443, 1, {}, 10, 20),), True),
    ):
        outcome = await call_tool(tool, timeline, {}, code="pass")
        assert outcome.untrusted == untrusted
        assert outcome.data["run"]["record"]["connections"][0]["host"] == "a.example.com"


def test_the_guide_names_the_hosts_of_each_profile() -> None:
    networked = ExecutionProfile(network=("api.example.com", "*.example.org:8443"))

    several = build_code_spec(profiles={"small": PROFILES["small"], "open": networked}).guide
    only = build_code_spec(profiles={"default": networked}).guide

    for guide in (several, only):
        assert "; network: api.example.com:443, *.example.org:8443" in guide
        assert "A program\n  can reach only the hosts listed under `network`" in guide
        assert "no network" not in guide
    assert "There is\n  no network" in build_code_spec(profiles=PROFILES).guide


async def test_a_program_is_granted_no_tool_that_its_profile_denies(call_tool, timeline, objects, history) -> None:
    tools = build_program_tools([ScriptedTool("lab_tools.mix"), ScriptedTool("other_tools.mix")])
    tool = RunCodeTool(sandbox := RecordingSandbox(), objects, history, tools, PROFILES)

    for name in PROFILES:
        await call_tool(tool, timeline, {"profile": name}, code="pass")

    granted = [[grant.tool_id for grant in request.capability.grants] for request in sandbox.requests]
    assert granted == [["other_tools.mix"], ["lab_tools.mix", "other_tools.mix"]]
    assert "cannot call lab_tools.mix" in tool.spec.guide


async def test_what_a_result_can_not_show_of_the_output_is_kept_as_a_log(call_tool, timeline, objects, history) -> None:
    printed = "".join(f"line {number}\n" for number in range(3_000))
    tool = RunCodeTool(RecordingSandbox(printed=printed), objects, history, build_program_tools())

    outcome = await call_tool(tool, timeline, {}, code="...", call_id="call_1")
    short = await call_tool(
        RunCodeTool(RecordingSandbox(printed="hi\n"), objects, history, build_program_tools()), timeline, {}, code="..."
    )

    (log,) = outcome.artifacts
    assert (log.ref, log.kind, log.visibility) == ("fi:turn_1.logs/call_1.txt", ArtifactKind.RESULT, "internal")
    assert printed in objects.stored[log.object_key].decode()
    assert f"Longer output of the program: {log.ref}" in outcome.text
    assert short.artifacts == ()
