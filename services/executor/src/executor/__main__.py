"""Entry point of the executor: `python -m executor`, started by a supervisor inside the sandbox."""

import os
import sys

from executor.runner import main

if __name__ == "__main__":
    # Without an orderly end: nothing here is worth one, and with many imports it takes long.
    os._exit(main(sys.argv[1:]))
