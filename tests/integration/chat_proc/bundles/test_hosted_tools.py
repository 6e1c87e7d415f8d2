"""A function of a bundle as a tool of the worker, through a real host process."""

import asyncio
import os

import pytest

from chat_proc.catalog.tool import ToolRaised
from everturn.core.errors import Invalid
from everturn_sdk.protocol import MAX_REQUESTS

TOOLS = '''
import datetime, resource
from typing import Literal
from everturn_sdk.protocol import SourceRow

claims = []

@tool(effect="pure", strategy="exploration")
async def find(name: str, context: ToolContext, limit: int = 3) -> list[dict[str, object]]:
    """Finds tickets by name.

    The newest first.
    """
    context.progress(f"Looking for {name}.")
    return [{"name": name, "limit": limit, "turn": context.call.turn_id, "user": context.call.user_id}]

@tool(effect="idempotent", requires_approval=True, timeout_s=5)
def close(number: int, reason: str | None = None) -> str:
    """Closes a ticket."""
    return f"closed {number}"

@tool(effect="pure")
def plan(day: datetime.date, kind: Literal["call", "visit"], notes: list[str] = []) -> str:
    """Plans."""
    return f"{kind} on {day:%A}: {notes}"

@tool(effect="pure")
def explain(context: ToolContext) -> None:
    """Fails with a notice."""
    raise ToolError("The desk is closed on Sundays.")

@tool()
async def explode() -> None:
    """Fails."""
    raise ValueError("no such ticket")

@tool(effect="pure")
def leave() -> None:
    """Leaves."""
    raise SystemExit(3)

@tool(effect="pure")
def research(context: ToolContext) -> dict[str, object]:
    """Finds sources and makes a report."""
    sids = context.wait(context.claim([SourceRow(url="https://a.example/1", title="One", text="one"),
                                       SourceRow(url="https://a.example/2", title="Two")]))
    ref = context.wait(context.put_artifact("outputs/report.md", "# Report", description="A report"))
    return {"sids": sids, "ref": ref}

@tool(effect="pure")
async def store(path: str, size: int, context: ToolContext) -> str:
    """Stores a file."""
    return await context.put_artifact(path, b"x" * size, visibility="internal")

@tool(effect="pure")
async def cite(url: str, context: ToolContext) -> list[int]:
    """Cites."""
    return await context.claim([SourceRow(url=url)])

@tool(effect="pure")
async def forget(context: ToolContext) -> int:
    """Does not wait for its sources."""
    claims.append(asyncio.create_task(context.claim([SourceRow(url="https://a.example/")])))
    await asyncio.sleep(0)
    return os.getpid()

@tool(effect="pure")
async def cite_many(count: int, context: ToolContext) -> int:
    """Cites at once."""
    cited = [context.claim([SourceRow(url=f"https://a.example/{number}")]) for number in range(count)]
    return len(await asyncio.gather(*cited))

@tool(effect="pure")
def chatter(count: int, context: ToolContext) -> str:
    """Sends events."""
    for number in range(count):
        context.message(f"{number}")
    return "done"

@tool(effect="pure")
def page() -> Rendered:
    """Draws a page."""
    return Rendered("page.html", "<p>hello</p>")

@tool(effect="pure")
def read_settings() -> list[object]:
    """Reads."""
    return [dict(get_settings()), get_plain("search.limit"), get_plain("b:none", 7), get_secret("b:api_key")]

@tool(effect="pure")
def complain(context: ToolContext) -> str:
    """Sends its secret where texts are cut."""
    secret = get_secret("b:api_key")
    context.message("x" * (2_000 - 4) + secret)
    raise ToolError("x" * (4_000 - 4) + secret)

@tool(effect="pure")
async def long(chars: int) -> str:
    """Writes a long text."""
    return "é" * chars

@tool(effect="pure")
async def measure(text: str) -> int:
    """Counts."""
    return len(text)

@tool(effect="pure")
def look(path: str, write: bool = False) -> str:
    """Opens a file."""
    try:
        with open(path, "a" if write else "rb") as file:
            return "written" if write else f"read {len(file.read())}"
    except OSError as error:
        return type(error).__name__

@tool(effect="pure")
async def see() -> dict[str, object]:
    """Sees."""
    found = {}
    for name in ("everturn", "chat_proc", "asyncpg", "redis", "pydantic", "front_desk.tools.desk", "tools.desk"):
        try:
            __import__(name)
            found[name] = True
        except ImportError:
            found[name] = False
    return {"imports": found, "environment": dict(os.environ), "user": os.getuid(), "core": resource.getrlimit(4)}
'''
SETTINGS = {"search": {"limit": 5}}
SECRETS = {"api_key": "sesame-sesame"}


@pytest.fixture
async def desk(open_host):
    return await open_host(TOOLS, settings=SETTINGS, secrets=SECRETS)


async def test_a_function_in_a_folder_is_called(desk):
    outcome = await desk.call("find", name="Ulm")

    assert outcome.status == "ok"
    assert outcome.value == [{"name": "Ulm", "limit": 3, "turn": "turn_1", "user": "ann"}]
    assert desk.live.tool_events == [("progress", "Looking for Ulm.")]


async def test_signature_docstring_and_mark_describe_the_tool(desk):
    find, close = desk.tools["find"].spec, desk.tools["close"].spec

    assert (find.tool_id, find.summary, find.strategy, find.effect) == (
        "desk.find",
        "Finds tickets by name.",
        "exploration",
        "pure",
    )
    assert find.guide == "Finds tickets by name.\n\nThe newest first."
    assert list(find.params.model_fields) == ["name", "limit"]
    assert find.params.model_json_schema()["properties"]["limit"] == {"default": 3, "title": "Limit", "type": "integer"}
    assert (close.requires_approval, close.in_programs, close.timeout_s, close.returns) == (True, False, 5, "str")


async def test_arguments_are_converted_to_their_types(desk):
    outcome = await desk.call("plan", day="2026-11-29", kind="visit", notes=["a", "b"])

    assert outcome.text == "visit on Sunday: ['a', 'b']"


@pytest.mark.parametrize(
    ("params", "named"),
    [({"day": "soon", "kind": "call"}, "day"), ({"day": "2026-11-29", "kind": "call", "notes": [[]]}, "notes.0")],
)
async def test_arguments_that_only_the_function_can_check_are_refused(desk, params, named):
    outcome = await desk.call("plan", **params)

    assert outcome.status == "error"
    assert outcome.text.startswith(f"The parameters of desk.plan are invalid: {named}: ")


@pytest.mark.parametrize("params", [{"kind": "call"}, {"day": "2026-11-29", "kind": "party"}, {"what": 1}])
async def test_arguments_with_wrong_names_or_outer_types_never_reach_the_host(desk, params):
    with pytest.raises(Invalid):
        await desk.call("plan", **params)


async def test_a_tool_error_is_a_notice_for_the_model(desk):
    outcome = await desk.call("explain")

    assert (outcome.status, outcome.text) == ("error", "The desk is closed on Sundays.")


async def test_an_exception_names_its_type_and_its_line(desk):
    with pytest.raises(ToolRaised, match=r"ValueError: no such ticket \(desk.py, line \d+\)"):
        await desk.call("explode")


async def test_an_exit_ends_the_call_and_not_the_process(desk):
    with pytest.raises(ToolRaised, match="SystemExit"):
        await desk.call("leave")

    assert (await desk.call("measure", text="abc")).value == 3


async def test_sources_get_numbers_and_files_get_refs(desk):
    outcome = await desk.call("research")

    (artifact,) = outcome.artifacts
    assert outcome.value == {"sids": [1, 2], "ref": artifact.ref}
    assert [row.title for row in desk.pool.rows] == ["One", "Two"]
    assert (artifact.path, artifact.visibility, artifact.description) == (
        "turn_1/outputs/report.md",
        "external",
        "A report",
    )
    assert await desk.objects.load(artifact.object_key, max_bytes=100) == b"# Report"


async def test_a_large_file_arrives_whole(desk):
    outcome = await desk.call("store", path="files/big.bin", size=15 * 1024 * 1024)

    assert [(artifact.size, artifact.visibility) for artifact in outcome.artifacts] == [(15 * 1024 * 1024, "internal")]


@pytest.mark.parametrize(
    ("path", "size", "why"),
    [("outputs/big", 17 * 1024 * 1024, "at most 16777216"), ("../escape", 1, "path"), ("attachments/a", 1, "can't be")],
)
async def test_a_file_that_can_not_be_stored_is_a_notice(desk, path, size, why):
    outcome = await desk.call("store", path=path, size=size)

    assert outcome.status == "error"
    assert why in outcome.text
    assert outcome.artifacts == ()


async def test_a_source_without_an_address_is_a_notice(desk):
    outcome = await desk.call("cite", url="nowhere")

    assert outcome.status == "error"
    assert desk.pool.rows == []


async def test_calls_can_store_any_number_of_sources_at_once(desk):
    calls = [desk.call("cite_many", count=4 * MAX_REQUESTS) for _ in range(3)]

    assert [outcome.text for outcome in await asyncio.gather(*calls)] == [str(4 * MAX_REQUESTS)] * 3


async def test_calls_can_end_before_their_requests_are_answered(desk):
    pids = {(await desk.call("forget")).text for _ in range(4 * MAX_REQUESTS)}

    assert len(pids) == 1
    assert (await desk.call("cite_many", count=1)).text == "1"
    assert (await desk.call("forget")).text in pids


async def test_a_call_sends_a_hundred_events_at_most(desk):
    assert (await desk.call("chatter", count=100)).text == "done"
    assert (await desk.call("chatter", count=101)).text == "A call can send at most 100 events."
    assert len(desk.live.tool_events) == 200


async def test_what_is_rendered_becomes_a_file(desk):
    outcome = await desk.call("page")

    assert [artifact.path for artifact in outcome.artifacts] == ["turn_1/outputs/page.html"]
    assert outcome.value == "<p>hello</p>"


async def test_settings_are_read_and_secrets_are_hidden_in_results(desk):
    outcome = await desk.call("read_settings")

    assert outcome.value == [SETTINGS, 5, 7, "[redacted]"]
    assert "sesame" not in outcome.text


async def test_no_part_of_a_secret_is_left_where_a_text_is_cut(desk):
    outcome = await desk.call("complain")

    assert (outcome.text[-8:], len(outcome.text)) == ("xxxx[red", 4_000)
    (shown,) = [part for event in desk.live.tool_events for part in event if isinstance(part, str) and "xxxx" in part]
    assert (shown[-8:], len(shown)) == ("xxxx[red", 2_000)


async def test_long_texts_go_both_ways(desk):
    outcome = await desk.call("long", chars=1_000_000)

    assert len(outcome.text) == 1_000_000
    assert (await desk.call("measure", text="x" * 2_000_000)).value == 2_000_000


async def test_the_process_has_the_sdk_and_nothing_of_the_platform(desk):
    seen = (await desk.call("see")).value

    assert seen["imports"] == {
        "everturn": False,
        "chat_proc": False,
        "asyncpg": False,
        "redis": False,
        "pydantic": True,
        "front_desk.tools.desk": True,
        "tools.desk": True,
    }
    assert set(seen["environment"]) <= {
        "PATH",
        "HOME",
        "TMPDIR",
        "LANG",
        "LC_CTYPE",
        "MALLOC_ARENA_MAX",
        "PYTHONUNBUFFERED",
        "PYTHONDONTWRITEBYTECODE",
    }
    assert seen["core"] == [0, 0]


async def test_calls_run_side_by_side(open_host):
    desk = await open_host('''
started = 0

@tool(effect="pure")
async def meet(count: int) -> int:
    """Returns when all have come."""
    global started
    started += 1
    while started < count:
        await asyncio.sleep(0.001)
    return started

barrier = threading.Barrier(20)

@tool(effect="pure")
def meet_in_threads() -> int:
    """Returns when all have come."""
    return barrier.wait(10) >= 0
''')

    async with asyncio.timeout(20):
        met = await asyncio.gather(*(desk.call("meet", count=60) for _ in range(60)))
        threads = await asyncio.gather(*(desk.call("meet_in_threads") for _ in range(20)))

    assert {outcome.value for outcome in met} == {60}
    assert all(outcome.value for outcome in threads)


async def test_only_files_of_the_bundle_and_of_the_system_are_there(desk, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("of the platform")
    for each in (secret, tmp_path):
        each.chmod(0o755)
    home = (await desk.call("see")).value["environment"]["HOME"]
    code = f"{home.removesuffix('home')}code/front_desk/tools/desk.py"

    assert (await desk.call("look", path=str(secret))).text in ("PermissionError", "FileNotFoundError")
    assert (await desk.call("look", path=f"/proc/{os.getpid()}/environ")).text == "PermissionError"
    assert (await desk.call("look", path="/etc/shadow")).text == "PermissionError"
    assert (await desk.call("look", path=code)).text.startswith("read ")
    assert (await desk.call("look", path=code, write=True)).text == "PermissionError"
    assert (await desk.call("look", path="/etc/hosts")).text.startswith("read ")
    assert (await desk.call("look", path=f"{home}/notes", write=True)).text == "written"
    assert (await desk.call("look", path="/tmp/everturn-escape", write=True)).text == "PermissionError"


async def test_files_are_hidden_also_from_a_process_of_the_same_user(open_host, tmp_path):
    desk = await open_host(TOOLS, uids=range(0))
    (tmp_path / "secret").write_text("of the platform")

    assert (await desk.call("look", path=str(tmp_path / "secret"))).text == "PermissionError"
    assert (await desk.call("look", path="/etc/hosts")).text.startswith("read ")
