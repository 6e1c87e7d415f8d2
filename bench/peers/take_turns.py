"""Takes turns of an agent when asked: `take_turns.py pydantic_ai_turns`, in the environment of that agent's framework.

For each line of its input, a number of rounds, it prints the CPU seconds of a turn in which each round but the last
calls a tool.
"""

import asyncio
import importlib
import sys
import time


async def main(module: str) -> None:
    run_turn = importlib.import_module(module).run_turn
    for line in sys.stdin:
        before_s = time.process_time()
        await run_turn(int(line))
        print(time.process_time() - before_s, flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
