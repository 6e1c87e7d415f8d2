"""The command `PYTHONPATH=tests/support python -m suite`, which `make test` runs."""

import argparse
import asyncio
import os
import sys

from everturn.core.errors import EverturnError
from everturn_local.settings import REPOSITORY, load_environment
from suite.groups import GROUPS
from suite.lanes import Suite
from suite.run import run_suite


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="suite", description="Run all tests in parallel groups.")
    parser.add_argument("--lanes", type=int, default=count_lanes(), help="number of groups to run at a time")
    parser.add_argument("--limit-s", type=float, default=2400.0, help="time limit of the whole run in seconds")
    parser.add_argument("--max-flaky", type=int, default=0, help="how many failed tests may pass when run again")
    parser.add_argument("--all", action="store_true", help="also run the groups browser and compose")
    chosen = parser.parse_args(arguments)
    suite = Suite(
        root=REPOSITORY,
        groups=GROUPS,
        logs=REPOSITORY / ".pytest_cache" / "groups",
        lanes=chosen.lanes,
        limit_s=chosen.limit_s,
        # pytest finds tests/support by itself; the services that tests start must not.
        env={name: value for name, value in load_environment().items() if name != "PYTHONPATH"} | {"SAMPLED": "1"},
        max_flaky=chosen.max_flaky,
        on_request=chosen.all,
    )
    try:
        return asyncio.run(run_suite(suite, lambda text: print(text, flush=True)))
    except EverturnError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("error: interrupted", file=sys.stderr)
        return 130


def count_lanes() -> int:
    """One more than there are cores: a third of a group's time is spent waiting for servers, lease expiry and the
    like."""
    return len(os.sched_getaffinity(0)) + 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
