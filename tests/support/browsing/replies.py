"""What the scripted model says in the browser tests: replies of rounds, as the file that the model reads."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

LONG_ANSWER = (
    "One two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty and so on until this answer has become long enough to be read, left, reloaded and come "
    "back to in its middle."
)
FOLDED_ANSWER = (
    "Before.\n\n<details>\n<summary>The <b>whole</b> list</summary>\n\n- **first** of all\n- second\n\n"
    "```python\nprint('</details>')\n```\n\n</details>\n\nAfter."
)
HURT = "window.hurt=1"
HOSTILE_ANSWER = (
    f'Before <img src=x onerror="{HURT}"> <script>{HURT}</script> [link](javascript:{HURT}) '
    f"![picture](javascript:{HURT}) <svg onload={HURT}> <iframe srcdoc='<script>parent.{HURT}</script>'> "
    f"[data](data:text/html,<script>{HURT}</script>) after"
)
HOSTILE_NAME = f"'><img src=x onerror={HURT}>.csv"
SALES = b"month,region,revenue\n2024-01,North,1200\n2024-01,South,600\n2024-02,North,900\n2024-02,West,1500\n"
CHART_PROGRAM = """
import glob, os
import matplotlib.pyplot as plt
import pandas as pd
[path] = glob.glob("turn_*/attachments/sales.csv")
totals = pd.read_csv(path).groupby("region")["revenue"].sum()
os.makedirs(OUTPUT_DIR + "/outputs")
totals.to_csv(OUTPUT_DIR + "/outputs/by_region.csv")
totals.plot.bar(color="#1f6b58", figsize=(6, 3), rot=0, ylabel="revenue", xlabel="")
plt.tight_layout()
plt.savefig(OUTPUT_DIR + "/outputs/sales.png", dpi=90)
print(totals.to_dict())
"""
RICH_ANSWER = "\n\n".join(
    f"## Part {part} of the report NUMBER\n\nThe **totals** of NUMBER differ less than `expected`: *north* leads, see"
    f" [the page](https://example.org/NUMBER/{part}), and south follows.\n\n- first of NUMBER\n- second, {part}\n\n"
    f"| region | revenue |\n|---|---:|\n| North {part} | NUMBER |\n| South | 600 |\n\n"
    f"```python\ntotal = sum(row.revenue for row in rows)  # NUMBER\nprint({part}, total)\n```"
    for part in (1, 2)
)
CHART_ANSWER = (
    "**North** sold the most, and South the least.\n\n| region | revenue |\n|---|---:|\n| North | 2,100 |\n"
    "| South | 600 |\n| West | 1,500 |\n\nThe chart shows the totals; `by_region.csv` has the figures."
)


@dataclass(frozen=True, slots=True)
class Reply:
    """What the model says in a round; `pause_ms` is waited before each of the pieces it comes in."""

    text: str
    chunk_chars: int = 64
    pause_ms: int = 0
    then: str = "stop"


def act(thinking: str = "", **fields: Any) -> str:
    """One action, after a thought where there is one."""
    thought = f"<channel:thinking>{thinking}</channel:thinking>\n" if thinking else ""
    return f"{thought}<channel:action>{json.dumps({'notes': '', **fields})}</channel:action>"


def call(tool_id: str, params: dict[str, Any], *, notes: str = "", thinking: str = "") -> str:
    return act(thinking, action="call_tool", notes=notes, tool_call={"tool_id": tool_id, "params": params})


def write(path: str, content: str, *, notes: str = "") -> str:
    """Writes a file before the person's eyes."""
    params = {"path": path, "channel": "canvas", "kind": "file", "content": content}
    return call("react.write", params, notes=notes)


def run(program: str, *files: str, notes: str = "", thinking: str = "") -> str:
    """Runs a program that makes these files."""
    contract = [{"filepath": file} for file in files]
    params = {"contract": contract, "prog_name": "analysis", "timeout_s": 60}
    decision = call("exec_tools.execute_code_python", params, notes=notes, thinking=thinking)
    return f"{decision}\n<channel:code>{program}</channel:code>"


def answer(text: str, *suggestions: str, notes: str = "", thinking: str = "") -> str:
    return act(thinking, action="complete", notes=notes, final_answer=text, suggested_followups=list(suggestions))


def slowly(text: str) -> Reply:
    """Word by word."""
    return Reply(text, chunk_chars=8, pause_ms=60)


def build_script(when: str, *rounds: Reply | str) -> str:
    """The replies to a message that contains `when`, as a table of the model's file."""
    replies = [each if isinstance(each, Reply) else Reply(each) for each in rounds]
    return f"[[scripts]]\nwhen = {json.dumps(when)}\n" + "".join(map(_render, replies))


def _render(reply: Reply) -> str:
    text = json.dumps(reply.text, ensure_ascii=True)
    pace = f"chunk_chars = {reply.chunk_chars}\npause_ms = {reply.pause_ms}"
    return f"[[scripts.rounds]]\n{pace}\nthen = {json.dumps(reply.then)}\nreply = {text}\n"


def build_scripts(hostile_page: str, frames_page: str) -> str:
    """All replies; the pages are of the agent, and try to get out of their frame or to keep frames of their own."""
    scripts: Sequence[str] = (
        build_script(
            "script:slow",
            slowly(answer(LONG_ANSWER, thinking="This takes a while, word by word.")),
        ),
        # The turn goes on until it is stopped, or until a test opens the gate.
        build_script("script:endless", Reply(answer(LONG_ANSWER)[:-80], 8, 30, then="hang"), answer("Left it.")),
        build_script("script:gate", call("gate.wait", {"name": "first"}), answer("It heeds what was added.")),
        build_script(
            "script:twice",
            call("gate.wait", {"name": "first"}),
            call("gate.wait", {"name": "second"}),
            answer("Passed both."),
        ),
        build_script("script:plain", answer("A plain answer.", "script:plain once more")),
        build_script("script:emphasis", Reply(answer("*a_ " * 16_000 + "\n\nThe end."), 8_000)),
        build_script("script:underlines", Reply(answer("a\n=\n" * 20_000 + "\n\nThe end."), 8_000)),
        build_script("script:fail", Reply("", then="fail")),
        build_script("script:hostile", answer(HOSTILE_ANSWER)),
        build_script(
            "script:mail",
            call("mail.send", {"to": "ann@example.org", "text": f"<img src=x onerror={HURT}>"}),
            answer("That is settled."),
        ),
        build_script(
            "send Ann the report",
            call(
                "mail.send",
                {"to": "ann@example.org", "text": "Revenue by region: North 2,100, West 1,500, South 600."},
                thinking="This leaves the house.",
            ),
            answer("The report is not sent."),
        ),
        build_script("script:page", write("outputs/page.html", hostile_page), answer("The page is written.")),
        build_script("script:frames", write("outputs/frames.html", frames_page), answer("The page is written.")),
        build_script(
            "script:note",
            Reply(write("outputs/note.md", "# Note\n\nWritten *once*, shown once.\n"), 12, 20),
            answer("The note is in `outputs/note.md`."),
        ),
        build_script(
            "script:project",
            write("files/notes.txt", "One\nTwo\n"),
            write("files/src/page.html", f"<script>{HURT}</script>\n"),
            answer("The project begins."),
        ),
        build_script("script:amend", write("files/notes.txt", "One\nThree\n"), answer("The notes are changed.")),
        build_script(
            "script:plan",
            call("react.plan", {"mode": "new", "steps": ["look at the files", "write the note", "tell what it says"]}),
            Reply(write("outputs/note.md", "# Note\n", notes="✓ [1]\n… [2]"), 8, 40),
            slowly(answer(LONG_ANSWER, notes="✓ [2]\n… [3]")),
        ),
        build_script("script:rich", answer(RICH_ANSWER, thinking="All that Markdown has, for NUMBER.")),
        build_script("script:fold", slowly(answer(FOLDED_ANSWER))),
        build_script("script:cite", answer("Sales grew by a third [[S:1]], and nobody knows why [[S:2]].")),
        build_script(
            "total revenue by region",
            run(CHART_PROGRAM, "outputs/sales.png", "outputs/by_region.csv", thinking="A program can add this up."),
            Reply(answer(CHART_ANSWER, "Which region was best?", "Show it by month"), 16, 30),
        ),
    )
    return "\n".join(scripts)
