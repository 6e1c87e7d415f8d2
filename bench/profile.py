"""Where the CPU time of turns goes, by function, in each service.

Records the services with py-spy, which PATH must have (`pip install py-spy`), while clients take turns on a platform of
its own with one worker. Only threads that hold the interpreter's lock count. `make bench` leaves this script out,
because it has no goal.
"""

import argparse
import asyncio
import shutil
import signal
import sys
import tempfile
from collections import Counter
from pathlib import Path

from helpers.whole_turns import PlatformClient, build_script, drive, load_cpu

from everturn_local.supervision.platform import Platform

IDLE = ("_worker (concurrent/futures/thread.py",)
SHOWN = 40


async def profile(tokens: int, clients: int, turns: int, embedder: str) -> None:
    with tempfile.TemporaryDirectory(prefix="everturn-bench-") as name:
        folder = Path(name)
        script = folder / "script.toml"
        script.write_text(build_script(tokens))
        env = {"EMBEDDER": embedder, "EVERTURN_MODEL": f"scripted:{script}", "WORKER_SLOTS": str(max(16, clients))}
        async with Platform(folder / "home", env=env, workers=1) as platform:
            url = platform.urls[0]
            await drive([PlatformClient(url, f"early-{n}", tokens=tokens) for n in range(clients)], clients)
            services = {each: platform.pid(each) for each in platform.reports}
            recordings = {each: await record(folder / each, pid) for each, pid in services.items()}
            before = load_cpu(platform)
            found, took_s = await drive(
                [PlatformClient(url, f"user-{n}", tokens=tokens) for n in range(clients)], turns
            )
            spent = {part: seconds - before[part] for part, seconds in load_cpu(platform).items()}
            for process in recordings.values():
                process.send_signal(signal.SIGINT)
                await process.wait()
        print(f"{len(found) / took_s:.1f} turns/s of {tokens} tokens with {clients} clients")
        print("ms of CPU a turn: " + ", ".join(f"{part} {1e3 * s / len(found):.1f}" for part, s in spent.items()))
        for each in recordings:
            print(f"\n{each}: percent of its samples below each function\n{render_top((folder / each).read_text())}")


async def record(file: Path, pid: int) -> asyncio.subprocess.Process:
    py_spy = shutil.which("py-spy")
    if py_spy is None:
        sys.exit("py-spy is not installed. Install it with `pip install py-spy`, and have it in PATH.")
    quiet = asyncio.subprocess.DEVNULL
    return await asyncio.create_subprocess_exec(
        py_spy,
        "record",
        "-f",
        "raw",
        "-r",
        "100",
        "--gil",
        "--nonblocking",
        "-d",
        "600",
        "-o",
        str(file),
        "-p",
        str(pid),
        stdout=quiet,
        stderr=quiet,
    )


def render_top(raw: str) -> str:
    """Functions by the share of samples that they, or what they call, have."""
    samples: Counter[str] = Counter()
    total = 0
    for line in raw.splitlines():
        stack, _, count = line.rpartition(" ")
        frames = stack.split(";")
        if frames[-1].startswith(IDLE):
            continue
        total += int(count)
        for function in {frame.rpartition(":")[0] for frame in frames}:
            samples[function] += int(count)
    return "\n".join(f"{100 * n / total:5.1f} {function})" for function, n in samples.most_common(SHOWN))


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--tokens", type=int, default=200)
    arguments.add_argument("--clients", type=int, default=10)
    arguments.add_argument("--turns", type=int, default=300)
    arguments.add_argument("--embedder", default="auto", help="as EMBEDDER")
    chosen = arguments.parse_args()
    asyncio.run(profile(chosen.tokens, chosen.clients, chosen.turns, chosen.embedder))
