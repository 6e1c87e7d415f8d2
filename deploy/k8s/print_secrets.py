#!/usr/bin/env python3
"""Prints the Secrets of the overlay `small` for `kubectl create -f -`, with new passwords.

Needs only Python 3.11. Keys of models and of the bucket that are set in the environment, such as ANTHROPIC_API_KEY and
AWS_ACCESS_KEY_ID, become part of them.
"""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

DEPLOY = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(DEPLOY / "local" / "src"), str(DEPLOY.parent / "libs" / "common" / "src")]

from everturn_local.compose.prepare import (  # noqa: E402 - found by the path above
    DATABASE,
    REDIS_OPERATOR,
    build_redis_files,
    build_secrets,
    load_given,
)

POSTGRES = "everturn-postgres-rw:5432"
VALKEY = "everturn-valkey:6379"
INGRESS_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "OPENAI_API_KEY")
"""Those that an ingress reads too: for the bucket, and for the encoder of the memory search."""


def build_manifests(environment: Mapping[str, str]) -> list[dict[str, object]]:
    """A Secret for each of ingress, worker, migrations, Postgres and Valkey, by the names that the manifests use."""
    made = build_secrets()
    redis = build_redis_files(made[REDIS_OPERATOR])
    addresses = {
        name: value.replace(f"@{DATABASE}/", f"@{POSTGRES}/").replace("@redis:6379/", f"@{VALKEY}/")
        for name, value in (made | redis).items()
    }
    keys = {variable: environment[variable] for variable in load_given(made).values() if environment.get(variable)}
    values = {
        "everturn-ingress": {
            "DATABASE_URL": addresses["ingress-database-url"],
            "REDIS_URL": addresses["ingress-redis-url"],
            "AUTH_SECRET": made["auth-secret"],
            "SIGNING_SECRET": made["signing-secret"],
            **{name: value for name, value in keys.items() if name in INGRESS_KEYS},
        },
        "everturn-worker": {
            "DATABASE_URL": addresses["worker-database-url"],
            "REDIS_URL": addresses["worker-redis-url"],
            **keys,
        },
        "everturn-operator": {
            "DATABASE_OWNER_URL": addresses["owner-database-url"],
            "DATABASE_ADMIN_URL": addresses["admin-database-url"],
            "DATABASE_INGRESS_URL": addresses["ingress-database-url"],
            "DATABASE_WORKER_URL": addresses["worker-database-url"],
        },
        "everturn-postgres-superuser": {"username": "postgres", "password": made["postgres-password"]},
        "everturn-valkey": {"valkey.conf": redis["redis.conf"]},
    }
    return [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": "everturn"},
            "type": "kubernetes.io/basic-auth" if "username" in data else "Opaque",
            "stringData": data,
        }
        for name, data in values.items()
    ]


if __name__ == "__main__":
    manifests = build_manifests(os.environ)
    json.dump({"apiVersion": "v1", "kind": "List", "items": manifests}, sys.stdout, indent=2)
    sys.stdout.write("\n")
