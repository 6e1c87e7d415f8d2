"""The program contract on the real sandbox: what a well-meant program can do and what comes back."""

import asyncio
import hashlib

CSV = b"region,amount\nnorth,10\nsouth,32\nnorth,5\n"

CHART = """
import os
import pandas as pd
import matplotlib.pyplot as plt

table = pd.read_csv("turn_1/attachments/sales.csv").groupby("region")["amount"].sum()
table.to_csv(os.path.join(OUTPUT_DIR, "totals.csv"))
table.plot.bar()
plt.savefig(os.path.join(os.environ["OUTPUT_DIR"], "chart.png"))
print(table["north"])
"""


async def test_a_table_becomes_a_chart_and_a_table(run):
    inputs = {"turn_1/attachments/sales.csv": CSV}

    result = await run(CHART, outputs=("chart.png", "totals.csv"), inputs=inputs, timeout_s=30)

    assert result.ok, result.report_text
    chart, totals = result.artifacts
    assert chart.body.startswith(b"\x89PNG")
    assert totals.body == b"region,amount\nnorth,15\nsouth,32\n"
    assert (totals.size, totals.sha256) == (len(totals.body), hashlib.sha256(totals.body).hexdigest())
    assert result.user_out_tail == "15\n"
    assert [item.path for item in result.record.inputs] == ["turn_1/attachments/sales.csv"]
    assert [item.sha256 for item in result.record.outputs] == [chart.sha256, totals.sha256]


async def test_an_input_may_be_a_file_of_this_machine(run, tmp_path):
    file = tmp_path / "data.bin"
    file.write_bytes(bytes(range(256)) * 4000)

    result = await run("print(len(open('turn_1/attachments/d', 'rb').read()))", inputs={"turn_1/attachments/d": file})

    assert result.user_out_tail == "1024000\n"


async def test_top_level_await_works(run):
    result = await run("import asyncio\nawait asyncio.sleep(0.01)\nprint(await asyncio.sleep(0, 'slept'))")

    assert result.ok, result.report_text
    assert result.user_out_tail == "slept\n"


async def test_a_program_may_start_its_own_event_loop(run):
    result = await run("import asyncio\nasync def main(): print('mine')\nasyncio.run(main())")

    assert result.ok, result.report_text
    assert result.user_out_tail == "mine\n"


async def test_an_exception_names_the_line_of_the_program(run):
    result = await run("def divide(x):\n    return 1 / x\n\nprint('before')\ndivide(0)\n")

    assert not result.ok
    assert result.error.code == "program_error"
    assert result.error.where == "program.py line 2"
    assert "ZeroDivisionError: division by zero" in result.report_text
    assert "return 1 / x" in result.report_text
    assert "executor" not in result.report_text
    assert result.user_out_tail == "before\n"


async def test_a_syntax_error_names_its_line(run):
    result = await run("x = 1\nif x\n    pass\n")

    assert (result.error.code, result.error.where) == ("syntax_error", "program.py line 2")


async def test_an_exit_code_is_a_failure_and_zero_is_not(run):
    failed, fine = await run("import sys; sys.exit(3)"), await run("import sys; sys.exit()")

    assert failed.error.code == "exit_code"
    assert fine.ok


async def test_what_succeeded_is_kept_when_another_file_is_missing(run):
    result = await run("open(OUTPUT_DIR + '/a.txt', 'w').write('a')", outputs=("a.txt", "b.txt"))

    assert not result.ok
    assert result.error.code == "missing_output_files"
    assert [artifact.filepath for artifact in result.artifacts] == ["a.txt"]
    assert "b.txt" in result.report_text


async def test_files_outside_the_contract_are_named_and_not_kept(run):
    result = await run("open(OUTPUT_DIR + '/extra.txt', 'w').write('a')")

    assert result.ok
    assert result.artifacts == ()
    assert "extra.txt" in result.report_text


async def test_nested_and_unusual_names_come_out(run):
    paths = ("turn_1/outputs/über sicht.txt", "a" * 200 + ".txt")
    program = f"""
import os
os.makedirs(OUTPUT_DIR + "/turn_1/outputs")
for path in {paths!r}: open(OUTPUT_DIR + "/" + path, "w").write(path)
"""

    result = await run(program, outputs=paths)

    assert result.ok, result.report_text
    assert [artifact.body.decode() for artifact in result.artifacts] == list(paths)


async def test_threads_subprocesses_and_temporary_files_work(run):
    program = """
import subprocess, tempfile, threading, os, sys
import numpy as np
threading.Thread(target=lambda: print("thread")).start()
print(subprocess.run(["/bin/sh", "-c", "echo shell"], capture_output=True, text=True).stdout, end="")
print(subprocess.run([sys.executable, "-c", "print('python')"], capture_output=True, text=True).stdout, end="")
with tempfile.NamedTemporaryFile() as f: f.write(b"x")
print(float((np.ones((300, 300)) @ np.ones((300, 300)))[0, 0]))
"""

    result = await run(program)

    assert result.ok, result.report_text
    assert sorted(result.user_out_tail.split()) == ["300.0", "python", "shell", "thread"]


async def test_libraries_of_the_profile_are_imported_before_the_program_starts(run):
    result = await run("import sys; print('pandas' in sys.modules, 'docx' in sys.modules)", profile="preloaded")

    assert result.user_out_tail == "True False\n", result.report_text


async def test_document_libraries_work(run):
    program = """
import docx, openpyxl, pptx, pypdf
from PIL import Image
from reportlab.pdfgen.canvas import Canvas
Canvas(OUTPUT_DIR + "/a.pdf").showPage()
openpyxl.Workbook().save(OUTPUT_DIR + "/a.xlsx")
d = docx.Document(); d.add_paragraph("hello"); d.save(OUTPUT_DIR + "/a.docx")
pptx.Presentation().save(OUTPUT_DIR + "/a.pptx")
Image.new("RGB", (9, 9)).save(OUTPUT_DIR + "/a.jpg")
"""

    result = await run(program, outputs=("a.xlsx", "a.docx", "a.pptx", "a.jpg"), timeout_s=30)

    assert result.ok, result.report_text


async def test_the_environment_is_an_allow_list(run, sandbox):
    result = await run("print(open('/proc/self/environ').read().replace('\\0', '\\n'))")

    names = {line.split("=")[0] for line in result.user_out_tail.split()}
    allowed = {"WORKDIR", "OUTPUT_DIR", "EXECUTION_ID", "AGENT_IO_CONTEXT", "LANG", "LC_ALL", "TZ", "PWD"}
    if sandbox.image:
        allowed |= {"PATH", "HOME", "HOSTNAME"}  # the engine's own, of the image and the container
    assert names <= allowed


async def test_a_run_leaves_nothing_to_the_next_one(run):
    await run("open(OUTPUT_DIR + '/left.txt', 'w').write('a'); open('left.txt', 'w').write('a')")

    result = await run("import os; print(os.listdir(OUTPUT_DIR), [n for n in os.listdir() if not n.startswith('.')])")

    assert result.user_out_tail == "[] []\n"


async def test_runs_side_by_side_do_not_disturb_each_other(run):
    program = "import os, time\ntime.sleep(0.2)\nprint(len([p for p in os.listdir('/proc') if p.isdigit()]))"

    results = await asyncio.gather(*(run(program) for _ in range(4)))

    # The runner and the program; in one container also the supervisor and what kills the run.
    assert {result.user_out_tail for result in results} in ({"2\n"}, {"4\n"})


async def test_texts_with_nul_and_lone_surrogates_are_made_storable(run):
    result = await run("print('a\\0b\\udc80c'); raise ValueError('x\\0\\ud800')")

    text = result.user_out_tail + result.report_text + result.error.message + result.runtime_err_tail
    assert "\0" not in text
    text.encode("utf-8")


async def test_a_bad_request_is_refused_with_an_envelope(run):
    results = [
        await run("pass", outputs=("../x",)),
        await run("pass", outputs=("a", "a")),
        await run("pass", inputs={"/etc/x": b""}),
        await run("x" * (2 << 20)),
        await run("pass", inputs={"a": b"x" * 70000}, profile="little_room"),
    ]

    assert [result.error.code for result in results] == ["bad_request"] * 4 + ["inputs_too_large"]
    assert all(result.error.where == "request" for result in results)


async def test_the_posture_says_what_holds(sandbox):
    posture = sandbox.posture

    assert posture.runtime.startswith("cpython 3.")
    assert "none" in posture.network
    assert "tmpfs" in posture.disk
    assert "filter" in posture.seccomp or "profile" in posture.seccomp
