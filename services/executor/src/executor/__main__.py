"""Entry point of the executor: `python -m executor`, started by a supervisor inside the sandbox."""

import sys

from executor.runner import main

if __name__ == "__main__":
    sys.exit(main())
