"""The tools of a bundle in turns of real processes: results, files, events, rules, crashes, and a new version."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from helpers.forks import ForkingSpawn
from helpers.homes import copy_home

from everturn_local.supervision.platform import Platform

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

MANIFEST = """
id = "desk"

[settings]
city = "Ulm"

[builtin_tools]
off = ["react.write"]
fetch_hosts = ["docs.desk.example"]

[[policy]]
tool = "desk.refund"
when = "args.amount > 100 and 'admin' not in roles"
then = "deny"
because = "Refunds over 100 are made by hand."
"""
DESCRIPTOR = 'TOOLS_SPECS = [{"ref": "tools/desk.py", "alias": "desk"}]\nTOOL_RUNTIME = {"desk.find": "local"}\n'
TOOLS = '''
import os
from everturn_sdk import ToolContext, get_plain, get_secret, tool

@tool(effect="pure", strategy="exploration")
async def find(name: str, context: ToolContext) -> str:
    """Finds a ticket by the name of a person."""
    context.progress("Looking.")
    await context.put_artifact("outputs/ticket.txt", f"Ticket of {name}")
    print("the key is", get_secret("b:api_key"))
    return f"{name} in {get_plain('city')} has ticket 7, key {get_secret('b:api_key')}"

@tool()
def refund(amount: int) -> str:
    """Pays money back."""
    return f"paid {amount}"

@tool()
def crash() -> None:
    """Crashes."""
    os._exit(5)
'''


def act(**fields: Any) -> str:
    return f"<channel:action>{json.dumps(fields)}</channel:action>"


def call(tool_id: str, **params: Any) -> str:
    return act(action="call_tool", notes="", tool_call={"tool_id": tool_id, "params": params})


def script(when: str, *replies: str) -> str:
    rounds = (f"[[scripts.rounds]]\nreply = '''{reply}'''\n" for reply in replies)
    return f"[[scripts]]\nwhen = '{when}'\n" + "".join(rounds)


def answer(text: str) -> str:
    return act(action="complete", notes="", final_answer=text)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundles") / "desk"
    (folder / "tools").mkdir(parents=True)
    (folder / "bundle.toml").write_text(MANIFEST)
    (folder / "instructions.md").write_text("You work at a desk.")
    (folder / "tools_descriptor.py").write_text(DESCRIPTOR)
    (folder / "tools" / "desk.py").write_text(TOOLS)
    return folder


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return copy_home(tmp_path_factory.mktemp("platform"))


@pytest.fixture(scope="module")
def logs(home: Any) -> Path:
    return home / "logs"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def desk(
    tmp_path_factory: pytest.TempPathFactory, make_harness: Any, bundle: Path, home: Any
) -> AsyncIterator[Any]:
    """A platform with one worker and one bundle."""
    files = tmp_path_factory.mktemp("files")
    secrets = files / "secrets" / "bundles" / "desk"
    secrets.mkdir(parents=True)
    (secrets / "api_key").write_text("sesame-sesame\n")
    model = files / "model.toml"
    model.write_text(
        script("find it", call("desk.find", name="Ann"), answer("Found it."))
        + script("small refund", call("desk.refund", amount=5), answer("Paid."))
        + script("large refund", call("desk.refund", amount=500), answer("Not paid."))
        + script("crash it", call("desk.crash"), answer("It crashed."))
        + script("fetch it", call("web_tools.web_fetch", urls=["https://other.example/page"]), answer("Not read."))
        + script("write it", call("react.write", path="files/a", content="a", channel="canvas"), answer("No."))
    )
    config = files / "everturn.toml"
    config.write_text("[bundles.desk]\n")
    env = {
        "EVERTURN_MODEL": f"scripted:{model}",
        "BUNDLES_DIR": str(bundle.parent),
        "SECRETS_DIR": str(files / "secrets"),
        "BUNDLE_ENVIRONMENTS_DIR": str(files / "environments"),
        "EVERTURN_CONFIG": str(config),
    }
    async with Platform(home, ingresses=1, workers=1, env=env, durable=False, spawn=ForkingSpawn()) as platform:
        opened = make_harness(platform)
        yield opened
        await opened.quit()


async def run(harness: Any, text: str) -> Any:
    sent = await harness.clients[0].send_message("new", text, bundle_id="desk")
    watcher = harness.watch(sent.conversation_id)
    await watcher.wait_ended(sent.turn_id)
    state = await harness.check_invariants(sent.conversation_id, watcher)
    await harness.close()
    (turn,) = state.turns
    return turn


async def test_a_tool_answers_stores_a_file_and_shows_no_secret(desk: Any, logs: Path) -> None:
    turn = await run(desk, "find it")

    (step,) = turn.steps
    assert turn.answer == "Found it."
    assert (step.tool_id, step.status) == ("desk.find", "completed")
    assert "Ann in Ulm has ticket 7, key [redacted]" in step.result_preview
    assert [file.filename for file in turn.files] == ["ticket.txt"]
    log = (logs / "worker-1.log").read_text()
    assert "the key is [redacted]" in log
    assert "sesame" not in log


@pytest.mark.parametrize(
    ("text", "status", "said"), [("small refund", "completed", "paid 5"), ("large refund", "error", "by hand")]
)
async def test_a_rule_decides_by_the_arguments(desk: Any, text: str, status: str, said: str) -> None:
    (step,) = (await run(desk, text)).steps

    assert step.status == status
    assert said in step.result_preview


async def test_a_crash_is_an_ambiguous_call_and_the_turn_goes_on(desk: Any) -> None:
    turn = await run(desk, "crash it")

    (step,) = turn.steps
    assert (step.status, step.error) == ("error", "ambiguous")
    assert "it ended with status 5" in step.result_preview
    assert turn.answer == "It crashed."


async def test_a_tool_that_the_bundle_switched_off_does_not_exist(desk: Any) -> None:
    turn = await run(desk, "write it")

    (step,) = turn.steps
    assert (step.status, step.error) == ("error", "The agent has no such tool.")
    assert turn.files == ()


async def test_pages_of_other_hosts_than_the_bundle_names_are_not_read(desk: Any) -> None:
    (step,) = (await run(desk, "fetch it")).steps

    assert step.status == "error"
    assert "This agent can't request 'other.example', only docs.desk.example." in step.result_preview


@pytest.mark.slow
async def test_new_turns_use_new_code_and_broken_code_changes_nothing(desk: Any, bundle: Path) -> None:
    tools = bundle / "tools" / "desk.py"
    tools.write_text(TOOLS.replace("paid {amount}", "paid at once {amount}"))
    async with asyncio.timeout(120):
        while "paid at once 5" not in (await run(desk, "small refund")).steps[0].result_preview:
            """The workers load it after two looks, however many turns they run until then."""
    tools.write_text("raise ValueError('half an edit')")
    # Two looks of 2 s until it is read, and the time to refuse it.
    await asyncio.sleep(6)

    (after,) = (await run(desk, "small refund")).steps
    assert "paid at once 5" in after.result_preview
