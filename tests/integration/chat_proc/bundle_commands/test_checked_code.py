"""`everturn bundle check` loads the code of a bundle in a real process, and looks at everything beside it."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from helpers.mcp_servers import SAMPLE

from chat_proc.bundle_commands.command import check_folder, parse_arguments, run_bundle

MANIFEST = 'id = "desk"\ntitle = "Desk"\nstarters = ["Hi."]\n'
DESCRIPTOR = 'TOOLS_SPECS = [\n    {"ref": "tools/desk.py", "alias": "desk"},\n]\n'
TOOL = 'from everturn_sdk import *\n\n@tool()\ndef find(name: str) -> str:\n    """Finds."""\n    return name\n'
WORKFLOW = (
    "from everturn_sdk import BaseWorkflow\n\nclass Desk(BaseWorkflow):\n"
    "    async def run(self, payload):\n        return None\n"
)
OPERATION = (
    "\n    from everturn_sdk import operation\n\n    @operation()\n    def look(self) -> int:\n"
    '        """Looks."""\n        return 1\n'
)
SKILL = "---\nname: refunds\ndescription: Decides.\n---\nRead `sk:shop.refunds/more.md` and `sk:shop.gone/a.md`.\n"


DOTTED = "Files of the bundle are imported with a dot: write"


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SECRETS_DIR", "EVERTURN_CONFIG"):
        monkeypatch.delenv(name, raising=False)


def write(folder: Path, files: Mapping[str, str]) -> Path:
    for name, text in {"bundle.toml": MANIFEST, "instructions.md": "Be brief.", **files}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def with_tool(source: str, **more: str) -> dict[str, str]:
    return {"tools_descriptor.py": DESCRIPTOR, "tools/desk.py": source, **more}


def function(
    name: str = "find", parameters: str = "name: str", docstring: str = '"""Finds."""', options: str = ""
) -> str:
    return f"from everturn_sdk import *\n\n@tool({options})\ndef {name}({parameters}):\n    {docstring}\n    return 1\n"


@pytest.mark.parametrize(
    ("files", "problems"),
    [
        (
            with_tool("import json\n\nimport nothing_there\n"),
            [
                "tools/desk.py, line 3: ModuleNotFoundError: No module named 'nothing_there'. Name its package in "
                "requirements.txt, or correct the name."
            ],
        ),
        *[
            (
                with_tool(f"import json\n\n{written}\n", **{"tools/helper.py": "X = 1\n"}),
                [f"tools/desk.py, line 3: ModuleNotFoundError: No module named '{missing}'. {DOTTED} {advice}."],
            )
            for written, missing, advice in (
                ("from helper import X", "helper", "from .helper import X"),
                ("from shop.tools.helper import X as Y", "shop", "from .helper import X as Y"),
                ("import shop.tools.helper", "shop", "from . import helper"),
            )
        ],
        (with_tool("def f(:\n"), ["tools/desk.py, line 1: The code is not valid: invalid syntax."]),
        *[
            (with_tool(f"x = {'-' * signs}1\n"), ["tools/desk.py: The code is nested too deeply."])
            for signs in (5_000, 200_000)
        ],
        (
            with_tool(
                TOOL, **{"tools_descriptor.py": "import os\nTOOLS_SPECS = [\n {'ref': 'a.py', 'alis': 'x'},\n]\n"}
            ),
            ["tools_descriptor.py, line 3: TOOLS_SPECS[0]: alias: it is missing; alis: unknown key."],
        ),
        (
            with_tool(TOOL, **{"tools_descriptor.py": DESCRIPTOR.replace("desk.py", "disk.py")}),
            [
                "tools_descriptor.py, line 2: tools/disk.py is not a Python file of the bundle. Perhaps you mean "
                "tools/desk.py."
            ],
        ),
        (
            with_tool(f"open('tools/desk.py')\n{TOOL}"),
            [
                "tools/desk.py, line 1: FileNotFoundError: [Errno 2] No such file or directory: 'tools/desk.py'. The "
                'code does not run in the folder of the bundle: open its file as Path(__file__).parent / "NAME".'
            ],
        ),
        (
            {"bundle.toml": f'{MANIFEST}[[tools]]\nref = "gone.py"\nalias = "desk"\n'},
            ["bundle.toml, line 5: tools 1: gone.py is not a Python file of the bundle."],
        ),
        (
            with_tool(
                TOOL, **{"tools_descriptor.py": DESCRIPTOR.replace("\n]", '\n    {"ref": "b.py", "alias": "desk"},\n]')}
            ),
            [
                "tools_descriptor.py, line 3: TOOLS_SPECS[1]: The alias 'desk' is also that of TOOLS_SPECS[0] of "
                "tools_descriptor.py. Change one."
            ],
        ),
        (
            with_tool(function(docstring="pass")),
            ["tools/desk.py, line 4: desk.find: the function has no docstring, which the model needs to use it."],
        ),
        (
            with_tool(function(parameters="name")),
            ["tools/desk.py, line 4: desk.find: the parameter 'name' has no type."],
        ),
        (
            with_tool(function(docstring=f'"""{"x" * 301}"""') + function("other", docstring=f'"""{"y" * 302}"""')),
            [
                "tools/desk.py, line 4: desk.find: the first paragraph of its docstring has 301 characters; at most "
                "300 are allowed.",
                "tools/desk.py, line 10: desk.other: the first paragraph of its docstring has 302 characters; at most "
                "300 are allowed.",
            ],
        ),
        (
            with_tool(function("read"), **{"tools_descriptor.py": DESCRIPTOR.replace('"desk"}', '"react"}')}),
            ["tools/desk.py, line 4: Two tools have the id 'react.read'. Choose another alias."],
        ),
        (
            {"workflow.py": WORKFLOW.replace("run(self, payload)", "run(self)")},
            ["workflow.py: Desk.run must have the parameters self and payload."],
        ),
        (
            {"workflow.py": f"{WORKFLOW}\n    def pre_run_hook(self, turn):\n        pass\n"},
            ["workflow.py: Desk.pre_run_hook must have no parameter but self."],
        ),
        (
            {"workflow.py": f"{WORKFLOW}\n    def on_bundle_load(self):\n        1 / 0\n"},
            ["workflow.py, line 8: ZeroDivisionError: division by zero."],
        ),
        (
            {"workflow.py": WORKFLOW, "bundle.toml": f'{MANIFEST}[react]\nworkflow = "dag"\n'},
            [
                "bundle.toml, line 5: react.workflow: The bundle has a workflow.py, so this key can't be 'dag'. Remove "
                "one of them."
            ],
        ),
        (
            {"bundle.toml": f'{MANIFEST}[builtin_tools]\noff = ["web_tools.web_fech"]\n'},
            ["bundle.toml, line 4: builtin_tools: There is no tool 'web_tools.web_fech'."],
        ),
        (
            with_tool(
                TOOL,
                **{
                    "bundle.toml": f'{MANIFEST}[[policy]]\ntool = "desk.*"\nwhen = "args.nme == 1"\nthen = "deny"\n'
                    '[[policy]]\ntool = "desk.fnd"\nthen = "ask"\n'
                },
            ),
            [
                "bundle.toml, line 6: policy 1.when: desk.* has no parameter 'nme'. There are: name.",
                "bundle.toml, line 9: policy 2.tool: The agent has no tool 'desk.fnd'. Perhaps you mean desk.find.",
            ],
        ),
        (
            {
                "bundle.toml": f'{MANIFEST}[[policy]]\ntool = "*"\nthen = "ask"\n'
                '[[policy]]\ntool = "*"\nwhen = "amount > 1"\nthen = "ask"\n'
            },
            ["bundle.toml, line 9: policy 2.when: 'amount' is not allowed in a condition; it can use args, "],
        ),
        (
            {"tools_descriptor.py": 'MCP_TOOL_SPECS = [{"server_id": "crm", "alias": "c"}]\n'},
            ["MCP_TOOL_SPECS names the server 'crm', which is not defined. Define [mcp.crm] in bundle.toml; "],
        ),
        (
            with_tool(TOOL, **{"requirements.txt": "httpx\n-r other.txt\n"}),
            ["requirements.txt, line 2: '-r other.txt' is not allowed. Name packages such as `httpx>=0.28`."],
        ),
        (
            {"workflow.py": f"{WORKFLOW}{OPERATION.replace('()', '(roles=[chr(120)])')}"},
            ["workflow.py: look: there is no role 'x'. The roles are: "],
        ),
        ({"widgets/chart/app.js": ""}, ["widgets/chart: A widget needs the page index.html."]),
    ],
)
def test_what_makes_workers_refuse_a_bundle_is_a_problem(
    tmp_path: Path, files: dict[str, str], problems: list[str]
) -> None:
    found = list(map(str, check_folder(write(tmp_path, files)).problems))

    assert len(found) == len(problems), found
    assert all(each.startswith(expected) for each, expected in zip(found, problems, strict=True)), found


@pytest.mark.parametrize(
    ("files", "warnings"),
    [
        (
            with_tool(f"{TOOL}    get_secret('b:key'), get_plain('limit'), get_plain('limit', 3), get_secret('key')\n"),
            [
                "tools/desk.py, line 7: The secret 'b:key' is not set here. An operator puts it into the file "
                "bundles/desk/key in the folder SECRETS_DIR.",
                "tools/desk.py, line 7: [settings] of bundle.toml has no 'limit', and the call has no default.",
                "tools/desk.py, line 7: 'key' is not the name of a secret; write 'b:key'.",
            ],
        ),
        (
            with_tool(f"{TOOL}\nget_secret('b:key')\n"),
            [
                "tools/desk.py, line 8: The secret 'b:key' is not set here.",
                "tools/desk.py, line 8: everturn_sdk.settings.MissingSetting: This agent has no secret 'b:key'.",
            ],
        ),
        (
            with_tool(TOOL, **{"requirements.txt": "a-library-that-is-not-installed\n"}),
            ["requirements.txt: These libraries are not installed, so tools and workflow were not loaded."],
        ),
        (
            {
                "bundle.toml": f'{MANIFEST}[mcp.crm]\ncommand = "crm"\n'
                'env = { CRM = "${b:crm}", B = "${MCP_B_KEY}" }\n[mcp.shop]\nurl = "https://shop.example/mcp"\n'
                '[mcp.shop.oauth]\ngrant = "client_credentials"\nissuer = "https://id.example"\nclient_id = "a"\n'
                'client_secret = "${b:shop}"\n'
            },
            [
                "bundle.toml, line 6: mcp.crm.env.CRM: The secret 'b:crm' is not set here.",
                "bundle.toml, line 6: mcp.crm.env.B: The secret 'MCP_B_KEY' is not set here.",
                "bundle.toml, line 13: mcp.shop.oauth.client_secret: The secret 'b:shop' is not set here.",
            ],
        ),
        (
            {
                "bundle.toml": f'{MANIFEST}[mcp.crm]\nurl = "https://crm.example/mcp"\n[mcp.crm.oauth]\n'
                'grant = "client_credentials"\nissuer = "https://login.example"\nclient_id = "desk"\n'
                'client_secret = "${b:crm}"\n'
                '[knowledge]\nrepo = "https://github.com/org/docs.git"\ntoken = "b:git-token"\n'
            },
            [
                "bundle.toml, line 10: mcp.crm.oauth.client_secret: The secret 'b:crm' is not set here.",
                "bundle.toml, line 13: knowledge.token: The secret 'b:git-token' is not set here.",
            ],
        ),
        (
            {"skills/shop/refunds/SKILL.md": SKILL},
            [
                "skills/shop/refunds/SKILL.md, line 5: The skill shop.refunds has no file more.md.",
                "skills/shop/refunds/SKILL.md, line 5: The agent has no skill shop.gone.",
            ],
        ),
        (
            {"bundle.toml": f'{MANIFEST}[knowledge]\ndocs_root = "handbook"\n'},
            ["bundle.toml, line 4: knowledge: The folder 'handbook' does not exist or has no files that can be read."],
        ),
        (
            {"bundle.toml": f"{MANIFEST}[knowledge]\n", "knowledge/a.md": "# A\n[b](b.md)\n", "knowledge/x.bin": "\0"},
            ["knowledge/a.md, line 2: The link b.md is broken."],
        ),
        (
            {"tools/desk.py": TOOL.replace("tool()", "tool")},
            [
                "tools/desk.py, line 4: find is marked with @tool, but neither TOOLS_SPECS of tools_descriptor.py nor "
                "[[tools]] of bundle.toml names this file."
            ],
        ),
        (
            {
                "bundle.toml": f'{MANIFEST}[[policy]]\ntool = "crm.find"\nthen = "ask"\n'
                '[[policy]]\ntool = "mcp.away.find"\nthen = "ask"\n[[policy]]\ntool = "web_tools.*"\nthen = "ask"\n'
            },
            ["bundle.toml, line 5: policy 1.tool: The agent has no tool 'crm.find'. "],
        ),
        (
            with_tool(TOOL.replace("return name", "name")),
            ["tools/desk.py, line 4: find has a type for its result, but no return, so the model gets null."],
        ),
        (
            with_tool(TOOL.replace("return name", "def get():\n        return name\n    get()")),
            ["tools/desk.py, line 4: find has a type for its result, but no return, so the model gets null."],
        ),
        (with_tool(TOOL.replace("return name", "raise ToolError(name)")), []),
        (
            with_tool(
                TOOL.replace(
                    "return name", "if name:\n        raise ToolError(name)\n    else:\n        raise KeyError"
                )
            ),
            [],
        ),
        (
            with_tool(TOOL, **{"tools_descriptor.py": DESCRIPTOR.replace("TOOLS", "TOOL")}),
            [
                "tools_descriptor.py: It sets neither TOOLS_SPECS nor MCP_TOOL_SPECS, so it has no effect. Perhaps you "
                "mean TOOLS_SPECS in place of TOOL_SPECS.",
                "tools/desk.py, line 4: find is marked with @tool",
            ],
        ),
        (
            {
                "tool_descriptor.py": DESCRIPTOR,
                "skill/shop/refunds/SKILL.md": SKILL,
                "knowledge/a.md": "# A\n",
                "workflow_parts.py": "",
            },
            [
                "skill: Perhaps you mean skills, which the agent does not have.",
                "tool_descriptor.py: Perhaps you mean tools_descriptor.py, which the agent does not have.",
                "skill/shop/refunds/SKILL.md: This skill is not used. Skills belong into the folder skills.",
                "knowledge: bundle.toml has no [knowledge], so the agent does not know these documents.",
            ],
        ),
        (
            {
                "bundle.toml": f'{MANIFEST}[mcp.s]\ncommand = "nodex"\nargs = ["node_modules/s/a.js", "./x", ".."]\n',
                "node_modules/s/a.js": "",
            },
            [
                "bundle.toml, line 6: mcp.s.args: The server can't read node_modules/s/a.js, because node_modules is "
                "no part of the bundle. Install it elsewhere.",
                "bundle.toml, line 4: mcp.s: The command nodex does not exist here.",
            ],
        ),
        (
            with_tool(
                f"{TOOL}    from helper import X\n    from desk.tools.helper import Y\n    from ..lib.deep import Z\n"
                "    from x.lib import deep\n    try:\n        import helper\n    finally:\n        pass\n",
                **{"tools/helper.py": "", "lib/deep.py": "import json, top\n", "top.py": ""},
            ),
            [
                f"tools/desk.py, line 7: The import finds no module. {DOTTED} from .helper import X.",
                f"tools/desk.py, line 10: The import finds no module. {DOTTED} from ..lib import deep.",
            ],
        ),
        (
            {
                "bundle.toml": f'{MANIFEST}[mcp.s]\ncommand = "python"\nargs = ["srv/main.py"]\n',
                "srv/main.py": "import own, own2\nfrom desk.srv.own import X\n",
                "srv/own.py": "from own2 import X\n",
                "srv/own2.py": "from .own import X\n\nX = 1\n",
            },
            [
                "bundle.toml, line 4: mcp.s: The server ended before it answered, with exit status 1. It wrote: Trace",
                "srv/main.py, line 2: The import finds no module. The program of a server finds modules in its own "
                "folder, without a dot: write from own import X.",
            ],
        ),
        ({"tests/a.toml": "x = 1\n"}, ["tests/a.toml: turn: It is missing.", "tests/a.toml, line 1: x: Unknown key."]),
        (
            {
                "workflow.py": f"{WORKFLOW}    async def build(self):\n"
                "        await self.build_react(tools_module='desk.tools_descriptor')\n"
                "        await self.build_react(tools_module='shop.tools_descriptor')\n"
            },
            [
                "workflow.py, line 8: tools_module is 'shop.tools_descriptor', so each turn fails. Write "
                "'desk.tools_descriptor', or leave it out."
            ],
        ),
    ],
)
def test_what_an_operator_can_still_set_is_a_warning(
    tmp_path: Path, files: dict[str, str], warnings: list[str]
) -> None:
    checked = check_folder(write(tmp_path, files))

    found = list(map(str, checked.warnings))
    assert (checked.problems, len(found)) == ((), len(warnings)), found
    assert all(each.startswith(expected) for each, expected in zip(found, warnings, strict=True)), found
    assert not any(each.endswith("..") for each in found)


def test_servers_with_a_command_are_started(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sample = f'command = "{sys.executable}"\nargs = ["server.py", "stdio"]\n'
    folder = write(
        tmp_path,
        {
            "bundle.toml": f'{MANIFEST}[mcp.list]\ncommand = "npxx"\n[mcp.good]\n{sample}tools = ["add", "gone"]\n'
            f'[mcp.ended]\ncommand = "python"\nargs = ["-c", "import nothing_there"]\n',
            "server.py": SAMPLE.read_text(),
        },
    )
    checked = check_folder(folder)
    ended = str(checked.warnings[1])
    assert list(map(str, checked.warnings)) == [
        "bundle.toml, line 4: mcp.list: The command npxx does not exist here.",
        ended,
        "bundle.toml, line 6: mcp.good: tools names the tool 'gone', which the server does not have.",
    ]
    assert ended.startswith("bundle.toml, line 10: mcp.ended: ")
    assert ended.endswith("'nothing_there'. Name its package in requirements.txt, or correct the name.")

    run_bundle(parse_arguments(["check", str(folder)]))
    assert capsys.readouterr().out.splitlines()[-2:] == ["desk can be used. It has 3 MCP servers.", "mcp.good: add"]
    run_bundle(parse_arguments(["check", str(folder), "--json"]))
    assert json.loads(capsys.readouterr().out)["tools"] == ["mcp.good.add"]

    write(tmp_path, {"bundle.toml": f'{MANIFEST}[mcp.good]\n{sample}requires_approval = ["ad"]\n'})
    assert list(map(str, check_folder(folder).problems)) == [
        "bundle.toml, line 7: mcp.good.requires_approval: names the tool 'ad', which the server does not have. Until "
        "this is corrected, each call of its tools needs approval."
    ]


def test_what_a_bundle_has_is_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write(
        tmp_path / "desk",
        with_tool(
            f"{TOOL}    get_secret('b:key')\n",
            **{
                "bundle.toml": f'{MANIFEST}[knowledge]\n[mcp.crm]\nurl = "https://crm.example/mcp"\n',
                "workflow.py": WORKFLOW + OPERATION,
                "skills/shop/refunds/SKILL.md": SKILL.partition(" and")[0].replace("/more.md", ""),
                "knowledge/a.md": "# A\n",
                "knowledge/b.md": "# B\n",
                "widgets/chart/index.html": "",
            },
        ),
    )
    (tmp_path / "secrets" / "bundles" / "desk").mkdir(parents=True)
    (tmp_path / "secrets" / "bundles" / "desk" / "key").write_text("x")
    monkeypatch.setenv("SECRETS_DIR", str(tmp_path / "secrets"))

    status = run_bundle(parse_arguments(["check", str(folder)]))
    printed = capsys.readouterr().out
    run_bundle(parse_arguments(["check", str(folder), "--json"]))

    assert (status, printed) == (
        0,
        "desk can be used. It has 1 tool, a workflow, 1 operation, 1 MCP server, 1 skill, 2 documents, 1 widget.\n",
    )
    found = json.loads(capsys.readouterr().out)
    assert (found["parts"][:2], found["tools"]) == (["1 tool", "a workflow"], ["desk.find"])


def test_libraries_are_installed_when_that_is_asked_for(tmp_path: Path) -> None:
    (problem,) = check_folder(
        write(tmp_path, with_tool(TOOL, **{"requirements.txt": "no-such==0\n"})), installs=True
    ).problems

    assert str(problem).startswith("requirements.txt: pip ended with status 1.")
