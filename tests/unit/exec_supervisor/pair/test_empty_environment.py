"""The supervisor of a pair where nothing is installed but itself and bare everturn, as in its container."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[4]
SOURCES = [str(ROOT / part / "src") for part in ("libs/common", "services/exec-supervisor")]

# Without `site` there are no installed packages at all: whatever else it needs can't be found.
CHECK = f"""
import sys
sys.path.extend({SOURCES!r})
import exec_supervisor.__main__
import exec_supervisor.pair
ours = {{name for name in sys.modules if name.partition(".")[0] == "everturn"}}
names = ("broker_messages", "framing", "messages", "records", "streams")
formats = {{f"everturn.execution.{{name}}" for name in names}}
assert ours == {{"everturn", "everturn.execution"}} | formats, ours
"""


def test_it_imports_with_the_standard_library_alone():
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", CHECK], check=False, capture_output=True, text=True, timeout=50
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
