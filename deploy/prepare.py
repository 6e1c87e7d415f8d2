#!/usr/bin/env python3
"""Creates what deploy/docker-compose.yml needs in this folder: `.env`, everturn.env, config/everturn.toml and secrets.

Needs only Python 3.11. It keeps what exists, so run it as often as you like. Keys of models that are set in the
environment, such as ANTHROPIC_API_KEY, are copied into the secrets. `--store` adds keys for the included S3 server.
"""

import os
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER / "local" / "src"), str(FOLDER.parent / "libs" / "common" / "src")]

from everturn_local.compose.prepare import NotPrepared, prepare  # noqa: E402 - found by the path above

if __name__ == "__main__":
    try:
        prepare(FOLDER, os.environ, store="--store" in sys.argv[1:])
    except NotPrepared as error:
        sys.exit(f"error: {error}")
