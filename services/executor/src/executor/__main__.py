"""Entry point of the executor: `python -m executor`, started by a supervisor inside the sandbox."""

import os
import sys

from executor.runner import main

if __name__ == "__main__":
    # Skip the interpreter's cleanup: nothing here needs it, and after many imports it takes long.
    os._exit(main(sys.argv[1:]))
