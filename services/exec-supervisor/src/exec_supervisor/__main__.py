"""Entry point: `python -m exec_supervisor`, one process for one run; with `broker`, one for all pairs."""

import sys

from exec_supervisor.bootstrap import main

if __name__ == "__main__":
    sys.exit(main())
