"""`everturn bundle test` with real processes of bundles: what tests can check, and what they report."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from chat_proc.bundle_commands import servers
from chat_proc.bundle_commands.command import parse_arguments, run_bundle, save_new
from chat_proc.bundle_commands.playing import CODE_TOOL
from chat_proc.mcp.tools import AgentServers

DESK = '''
from everturn_sdk import SourceRow, ToolContext, get_plain, get_secret, tool

@tool(effect="pure")
async def find(name: str, context: ToolContext) -> dict:
    """Finds the ticket of a person."""
    print(f"looking for {name}")
    await context.claim([SourceRow(url="https://shop.example/orders/7", title="Order 7", text="It arrived.")])
    return {"order": 7, "name": name, "limit": get_plain("limit"), "key": len(get_secret("b:desk_key"))}

@tool(requires_approval=True)
def refund(order: int, amount: float) -> str:
    """Pays money back."""
    if amount > 1000:
        raise ValueError("the till has only 1000")
    return f"refunded {amount:g} for order {order}"

@tool()
async def report(context: ToolContext) -> str:
    """Writes a report."""
    return await context.put_artifact("outputs/report.txt", "All is well.")
'''
RATE = '''
@tool(effect="pure")
async def rate(context: ToolContext) -> int:
    """Rates the order."""
    schema = {"type": "object", "properties": {"stars": {"type": "integer"}}}
    return (await context.models.structured_call([{"role": "user", "content": "Rate it."}], schema))["stars"]
'''
WORKFLOW = """
from everturn_sdk import BaseWorkflow

class Desk(BaseWorkflow):
    async def run(self, payload):
        react = await self.build_react(knowledge_space_fn=self._search)
        number = await self.step("open_ticket", lambda: 12, effect="idempotent")
        await self.feedback("ok", "Noted.", key="noted")
        await self.store.put_attachment("ticket.txt", f"Ticket {number}")
        first = await react.run(payload)
        if "refund" in first.text:
            return await react.run(f"Check the refund of ticket {number}.")
        return first

    def _search(self, query, limit):
        return f"ks:docs/{query}.md has it"
"""
BASE = {
    "bundle.toml": 'id = "desk"\n[settings]\nlimit = 3\n[knowledge]\n[mcp.crm]\nurl = "https://crm.example/mcp"\n',
    "instructions.md": "You work for Spoke & Chain.",
    "tools_descriptor.py": 'TOOLS_SPECS = [{"ref": "tools/desk.py", "alias": "desk"}]\n',
    "tools/desk.py": DESK,
    "skills/shop/refunds/SKILL.md": "---\nname: refunds\ndescription: Decides on refunds.\n---\nWithin 14 days.\n",
    "knowledge/returns.md": "# Returns\nGoods can be returned within 14 days.\n",
    "tests/orders.csv": "order,amount\n7,120\n",
}
EVERYTHING = """
[secrets]
desk_key = "s3cret"

[settings]
limit = 9

[mcp_answers."mcp.crm.find_customer"]
value = { name = "Ann" }

[[turn]]
user = "Refund order 7."
attach = "orders.csv"
model = [
    { reply = "I look first.", calls = [
        { tool = "react.read", args = { paths = ["sk:shop.refunds"] } },
        { tool = "react.search_knowledge", args = { query = "returned goods" } },
        { tool = "desk.find", args = { name = "Ann" } },
        { tool = "mcp.crm.find_customer", args = { id = 3 } },
    ] },
    { calls = ["desk.report"] },
    { calls = [{ tool = "desk.refund", args = { order = 7, amount = 120 } }] },
    "You get 120 euros [[S:2]].",
]
approve = true

[turn.expect]
answer_contains = ["120", "euros"]
answer_matches = '\\b120 euros'
calls = [
    { tool = "desk.find", result_contains = ['"limit": 9', '"key": 6'] },
    { tool = "mcp.crm.find_customer", args = { id = 3 }, result_contains = "Ann" },
    { tool = "desk.refund", args = { amount = 120 }, result_contains = "refunded 120", status = "ok" },
]
no_calls = "react.write"
files = { path = "outputs/report.txt", contains = "All is well" }
sources = "https://shop.example/orders/7"
skills = "shop.refunds"
knowledge = "returns.md"
approvals = "desk.refund"
prompt_contains = "Spoke & Chain"

[[turn]]
user = "Thanks."
model = ["You are welcome."]
expect = { answer = "You are welcome." }
"""


@pytest.fixture(autouse=True)
def no_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SANDBOX_PYTHON", "BROKER_URL", "EXECUTION_MODE"):
        monkeypatch.delenv(name, raising=False)


def write(folder: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def play(folder: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    status = run_bundle(parse_arguments(["test", str(folder), *arguments]))
    return status, capsys.readouterr().out


def play_one(folder: Path, capsys: pytest.CaptureFixture[str], case: str) -> tuple[int, list[str]]:
    """The exit status, and the failures of the only test."""
    write(folder, {**BASE, "tests/test.toml": case})
    status, printed = play(folder, capsys)
    return status, [line.strip() for line in printed.splitlines() if line.startswith("  tests/")]


def test_a_case_goes_through_all_that_an_agent_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, printed = play(write(tmp_path, {**BASE, "tests/test.toml": EVERYTHING}), capsys)

    assert (status, printed.splitlines()[1:]) == (0, ["1 test passed."]), printed
    assert printed.startswith("ok  test  ")


PROJECT = """
[[turn]]
user = "Write it."
model = [
    { calls = [{ tool = "react.write", args = { path = "files/a.py", content = "1", channel = "internal" } }] },
    "Done.",
]

[[turn]]
user = "Delete it."
model = [
    { calls = [{ tool = "git.log" }, { tool = "git.remove", args = { paths = ["a.py"] } }] },
    { calls = ["git.diff"] },
    "Done.",
]

[turn.expect]
calls = [{ tool = "git.log", result_contains = "Write it." }, { tool = "git.diff", result_contains = "deleted file" }]
"""


def test_the_turns_of_a_case_continue_a_project(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = 'id = "coder"\n[workspace]\nmode = "git"\n'
    write(tmp_path, {"bundle.toml": manifest, "tests/project.toml": PROJECT})

    status, printed = play(tmp_path, capsys)

    assert status == 0, printed


def test_the_example_of_a_new_bundle_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, printed = play(save_new("shop", tmp_path), capsys, "-k", "hel", "--json")

    (line,) = printed.splitlines()
    assert (status, json.loads(line)["test"], json.loads(line)["passed"]) == (0, "hello", True)


@pytest.mark.parametrize(
    ("turn", "failure"),
    [
        (
            'model = ["Bye."]\nexpect = { answer = "Hello." }\n',
            "tests/test.toml, line 4: turn 1: expect.answer: expected 'Hello.', found 'Bye.'.",
        ),
        (
            'model = [{ calls = ["desk.report"] }]\n',
            "tests/test.toml, line 3: turn 1: model: the model was asked again after 1 reply: add what it replies "
            "then.",
        ),
        (
            'model = ["Bye.", "Again."]\n',
            "tests/test.toml, line 3: turn 1: model: expected the model to be asked for 2 replies, found that it was "
            "asked for 1.",
        ),
        (
            'model = [{ calls = [{ tool = "desk.refund", args = { order = 7, sum = 1 } }] }, "Bye."]\n',
            "tests/test.toml, line 1: turn 1: expect.calls: desk.refund(…) ended with the status error: "
            "'The parameters of desk.refund are invalid: amount: Field required; sum: Extra inputs are not permitted. "
            "Its parameters are, in this order: order, amount.'. If that is right, expect {",
        ),
        (
            'model = [{ calls = [{ tool = "desk.refund", args = { order = 7, amount = 1 } }] }, "Bye."]\n',
            "tests/test.toml, line 2: turn 1: user: a call of desk.refund waits for approval, but the turn doesn't "
            "say what the person answers: add approve = true, or false.",
        ),
        (
            'model = [{ calls = [{ tool = "desk.refund", args = { order = 7, amount = 1 } }] }, "Bye."]\n'
            'approve = true\nexpect = { calls = [{ tool = "desk.refund", result_contains = "refunded 2" }] }\n',
            "tests/test.toml, line 5: turn 1: expect.calls: expected 'refunded 2' in the result of "
            "desk.refund(amount=1, order=7), found 'refunded 1 for order 7'.",
        ),
        (
            'model = [{ then = "fail_for_good" }]\n',
            "tests/test.toml, line 1: turn 1: expect.outcome: expected an answer, found the problem "
            "model-failed (The model did not answer. ",
        ),
    ],
)
def test_a_failure_says_what_was_expected_and_what_was_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], turn: str, failure: str
) -> None:
    status, failures = play_one(tmp_path, capsys, f'[[turn]]\nuser = "Hi."\n{turn}')

    assert status == 1
    assert len(failures) == 1 and failures[0].startswith(failure), failures


def test_a_call_that_fails_at_an_import_says_what_to_write(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    late = '\n@tool()\ndef late() -> int:\n    """Late."""\n    from helper import X\n    return X\n'
    case = '[[turn]]\nuser = "Hi."\nmodel = [{ calls = ["desk.late"] }, "Bye."]\n'
    files = {**BASE, "tools/desk.py": f"{DESK}{late}", "tools/helper.py": "X = 1\n", "tests/test.toml": case}

    status, printed = play(write(tmp_path, files), capsys)

    assert status == 1
    assert "No module named 'helper'" in printed
    assert f"tools/desk.py, line {DESK.count(chr(10)) + 5}: The import finds no module. Files of the " in printed


def test_a_missing_secret_belongs_into_the_test(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call = '{ calls = [{ tool = "desk.find", args = { name = "Ann" } }] }'
    status, failures = play_one(
        tmp_path, capsys, f'[[turn]]\nuser = "Hi."\nmodel = [{call}, "Bye."]\n[secrets]\nx = "1"'
    )
    at_import = {"tools/desk.py": "from everturn_sdk import get_secret\n\nKEY = get_secret('b:desk.key')\n"}
    unusable, printed = play(write(tmp_path, at_import), capsys)

    assert (status, unusable) == (1, 2)
    hint = "tests/test.toml, line 4: secrets: The test sets no secret 'b:{}'. Write {} = \"...\" below [secrets]."
    assert failures == [
        "tests/test.toml, line 1: turn 1: expect.calls: desk.find(name='Ann') ended with the status error: "
        '"desk.find failed: everturn_sdk.settings.MissingSetting: This agent has no secret '
        "'b:desk_key'. An operator sets it. (desk.py, line 9)\". If that is right, expect "
        '{ tool = "desk.find", status = "error" }.',
        hint.format("desk_key", "desk_key"),
    ]
    assert printed.splitlines() == [
        "error: tools/desk.py, line 3: everturn_sdk.settings.MissingSetting: This agent has no secret 'b:desk.key'. An "
        "operator sets it.",
        "error: " + hint.format("desk.key", '"desk.key"'),
    ]


def test_a_denied_call_and_expected_problems_are_no_failures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = (
        '[[turn]]\nuser = "Refund."\nmodel = [{ calls = [{ tool = "desk.refund", args = { order = 7, amount = 1 '
        '} }] }, "No."]\napprove = false\nexpect = { approvals = "desk.refund", calls = '
        '{ tool = "desk.refund", status = "cancelled" } }\n'
        '[[turn]]\nuser = "Refund all."\nmodel = [{ calls = [{ tool = "desk.refund", args = { order = 7, amount = 9999 '
        '} }] }, "No."]\napprove = true\nexpect = { calls = { tool = "desk.refund", status = "ambiguous" } }\n'
        '[[turn]]\nuser = "Hi."\nmodel = [{ calls = [{ tool = "desk.refund", args = { order = 7 } }] }, "No."]\n'
        'expect = { calls = { tool = "desk.refund", status = "error", result_contains = "amount" } }\n'
        '[[turn]]\nuser = "Hi."\nmodel = [{ then = "fail_for_good" }]\nexpect = { problem = "model-failed" }\n'
    )

    assert play_one(tmp_path, capsys, case) == (0, [])


def test_a_workflow_runs_with_its_steps_and_tasks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = (
        '[[turn]]\nuser = "Hi."\nmodel = [{ calls = [{ tool = "react.search_knowledge", args = { query = "x" } }] }, '
        '"A refund.", "It is right."]\n'
        'expect = { answer = "It is right.", steps = "open_ticket", knowledge = "docs/x.md", '
        'files = { path = "outputs/ticket.txt", contains = "Ticket 12" } }\n'
    )
    write(tmp_path, {"workflow.py": WORKFLOW})

    assert play_one(tmp_path, capsys, case) == (0, [])
    status, failures = play_one(tmp_path, capsys, case.replace('"open_ticket"', '"noted"'))
    assert (status, len(failures)) == (1, 1)
    assert failures[0].endswith("expected the step noted to be done, found open_ticket.")


def test_replies_answer_a_tool_that_calls_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = (
        '[[turn]]\nuser = "Rate it."\nmodel = [{ calls = "desk.rate" }, \'{"stars": 4}\', "Four stars."]\n'
        'expect = { answer = "Four stars.", calls = { tool = "desk.rate", result_contains = "4" } }\n'
    )
    write(tmp_path, {**BASE, "tools/desk.py": DESK + RATE, "tests/test.toml": case})

    status, printed = play(tmp_path, capsys)
    assert (status, printed.splitlines()[1:]) == (0, ["1 test passed."]), printed


def test_a_reply_waits_for_the_request_that_shows_its_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = (
        '[[turn]]\nuser = "Hi."\nmodel = [{ reply = "Done.", shows = "report.txt" }, { calls = "desk.report" }]\n'
        'expect = { answer = "Done." }\n'
    )

    assert play_one(tmp_path, capsys, case) == (0, [])


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        (
            {"tests/test.toml": '[[turn]]\nuser = "Hi."\nmodel = [{ calls = ["desk.fnd"] }]\n'},
            "tests/test.toml, line 3: turn 1: model: The agent has no tool 'desk.fnd'. Perhaps you mean desk.find. "
            "The agent has: desk.find, ",
        ),
        (
            {"tests/test.toml": '[[turn]]\nuser = "Hi."\nmodel = [{ calls = ["mcp.crm.find"] }]\n'},
            "tests/test.toml, line 3: turn 1: model: The agent has no tool 'mcp.crm.find'. Write its answer as "
            '[mcp_answers."mcp.crm.find"].',
        ),
        (
            {
                "bundle.toml": 'id = "desk"\n[mcp.list]\ncommand = "npxx"\n',
                "tests/test.toml": '[[turn]]\nuser = "Hi."\nmodel = [{ calls = ["mcp.list.add"] }]\n',
            },
            "tests/test.toml, line 3: turn 1: model: The agent has no tool 'mcp.list.add'. mcp.list: The command npxx "
            "does not exist here. The agent has: ",
        ),
        (
            {"tests/test.toml": f'[[turn]]\nuser = "Hi."\nmodel = [{{ calls = ["{CODE_TOOL}"] }}]\n'},
            f"tests/test.toml, line 3: turn 1: model: The agent has no tool '{CODE_TOOL}'. Programs can't run here: "
            "SANDBOX_PYTHON is not set.",
        ),
    ],
)
def test_a_call_of_a_tool_that_does_not_exist_is_a_mistake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], files: dict[str, str], problem: str
) -> None:
    status, printed = play(write(tmp_path, {**BASE, **files}), capsys)

    assert (status, problem in printed) == (1, True), printed


@pytest.mark.parametrize(
    ("code", "within_s", "why"),
    [
        ("import time; time.sleep(600)", 2.0, "The server neither answered nor failed within 2 s."),
        ("raise SystemExit('no database')", 60.0, "It wrote: no database"),
    ],
)
def test_cases_wait_once_for_a_server_that_is_away(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    code: str,
    within_s: float,
    why: str,
) -> None:
    monkeypatch.setattr(servers, "START_WITHIN_S", within_s)
    waited_s: list[float] = []
    wait = AgentServers.wait_for_attempts

    async def note(self: AgentServers, limit_s: float) -> tuple[str, ...]:
        waited_s.append(limit_s)
        return await wait(self, limit_s)

    monkeypatch.setattr(AgentServers, "wait_for_attempts", note)
    files: dict[str, str] = {
        "bundle.toml": f'id = "desk"\n[mcp.list]\ncommand = "{sys.executable}"\nargs = ["-c", "{code}"]\n'
    }
    case = '[[turn]]\nuser = "Hi."\nmodel = [{ reply = "Hello.", shows = ["UNAVAILABLE TOOLS"] }]\n'
    files |= {f"tests/case_{number}.toml": case for number in range(4)}
    files["tests/z.toml"] = '[[turn]]\nuser = "Hi."\nmodel = [{ calls = ["mcp.list.add"] }]\n'
    folder = write(tmp_path, {"instructions.md": "You greet.", **files})
    status, printed = play(folder, capsys)
    assert status == 1 and "1 of 5 tests failed." in printed
    assert why in printed, printed
    assert waited_s == [within_s] * (1 if "sleep" in code else 5)


@pytest.mark.parametrize("name", ["find-customer", "find_customer"])
@pytest.mark.parametrize("configured", ["find-customer", "*"])
def test_fixed_answers_have_the_ids_of_the_tools(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, configured: str
) -> None:
    manifest = f'id = "desk"\n[mcp.crm]\nurl = "https://crm.example/mcp"\ntools = ["{configured}"]\n'
    case = (
        f'[mcp_answers."mcp.crm.{name}"]\ntext = "Ann"\n[[turn]]\nuser = "Hi."\n'
        'model = [{ calls = "mcp.crm.find_customer" }, "Done."]\nexpect = { calls = "mcp.crm.find_customer" }\n'
    )
    folder = write(tmp_path, {"bundle.toml": manifest, "instructions.md": "You greet.", "tests/test.toml": case})
    status, printed = play(folder, capsys)
    assert (status, printed.splitlines()[-1]) == (0, "1 test passed."), printed


def test_all_tools_are_offered_however_many_there_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = "".join(
        f'\n@tool(effect="pure")\ndef look_{n}() -> str:\n    """Looks."""\n    return ""\n' for n in range(12)
    )
    case = (
        '[[turn]]\nuser = "Hi."\nmodel = [{ calls = "desk.report" }, "Done."]\n'
        'expect = { calls = "desk.report", answer = "Done.", prompt_contains = "Spoke & Chain" }\n'
    )
    threshold = f"{BASE['bundle.toml']}[config.react]\ntool_selection_threshold = 3\n"
    write(tmp_path, {**BASE, "tools/desk.py": DESK + more, "tests/test.toml": case})
    for manifest in (BASE["bundle.toml"], threshold):
        status, printed = play(write(tmp_path, {"bundle.toml": manifest}), capsys)
        assert (status, printed.splitlines()[1:]) == (0, ["1 test passed."]), printed


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({"tools/desk.py": "import nothing_there\n"}, "error: "),
        ({"bundle.toml": "id = 1\n"}, "error: bundle.toml, line 1: id: Input should be a valid string.\n"),
        (
            {"tests/test.toml": f'[mcp_answers."mcp.erp.x"]\ntext = "x"\n{EVERYTHING[EVERYTHING.index("[[turn]]") :]}'},
            "error: mcp_answers: The agent has no server for 'mcp.erp.x'. Its servers are: mcp.crm.\n",
        ),
    ],
)
def test_a_bundle_that_cannot_be_used_is_no_failed_case(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], files: dict[str, str], problem: str
) -> None:
    status, printed = play(write(tmp_path, {**BASE, "tests/test.toml": EVERYTHING, **files}), capsys)

    assert (status, printed.startswith(problem)) == (2, True), printed
