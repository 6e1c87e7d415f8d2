"""Tests of bundles whose scripted model runs programs, in the sandbox of this machine."""

from pathlib import Path

import pytest

from chat_proc.bundle_commands.command import parse_arguments, run_bundle

PYTHON = Path(__file__).parents[3] / ".venv-sandbox" / "bin" / "python"
CASE = """
[[turn]]
user = "Add the amounts."
attach = "sales.csv"
model = [
    { calls = [{ tool = "exec_tools.execute_code_python", args = { contract = [{ filepath = "outputs/sum.txt" }], \
code = '''
import csv, glob, os
(path,) = glob.glob(os.path.join(WORKDIR, "turn_*/attachments/sales.csv"))
total = sum(int(row["amount"]) for row in csv.DictReader(open(path)))
os.makedirs(os.path.join(OUTPUT_DIR, "outputs"))
open(os.path.join(OUTPUT_DIR, "outputs/sum.txt"), "w").write(str(total))
print("total", total)
''' } }] },
    "It is 120.",
]

[turn.expect]
calls = { tool = "exec_tools.execute_code_python", result_contains = "total 120" }
files = { path = "outputs/sum.txt", contains = "120" }
"""


def test_a_program_of_a_case_runs_in_the_sandbox(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not PYTHON.exists():
        pytest.skip("make setup makes the environment of programs")
    monkeypatch.setenv("SANDBOX_PYTHON", str(PYTHON))
    (tmp_path / "tests").mkdir()
    (tmp_path / "bundle.toml").write_text('id = "sums"\n')
    (tmp_path / "tests" / "sales.csv").write_text("name,amount\na,50\nb,70\n")
    (tmp_path / "tests" / "sum.toml").write_text(CASE)

    status = run_bundle(parse_arguments(["test", str(tmp_path)]))

    printed = capsys.readouterr().out
    if "Programs can't run here" in printed:
        pytest.skip(printed)
    assert (status, printed.splitlines()[-1]) == (0, "1 test passed."), printed
