"""Makes the one image of stand-ins: the programs and libraries of this machine on the base of our own images."""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from everturn_local.images.bases import DEFAULT_BASE
from everturn_local.images.contents import CONTENT_LABEL
from everturn_local.images.context import Context, build_digest, load_folder
from everturn_local.images.debian import build_base_name
from everturn_local.images.engine import Engine, FoundImage
from everturn_local.servers.clamd import EICAR, PROGRAMS
from everturn_local.servers.postgres import load_postgres_binary
from everturn_local.servers.redis import load_redis_binary

FILES = Path(__file__).with_name("files")
REPOSITORY = "everturn/standins"
OF_THE_BASE = ("libc.so", "libm.so", "libpthread.so", "libdl.so", "librt.so", "libresolv.so", "ld-linux")


def try_load_base(engine: Engine) -> FoundImage | None:
    """The base of our own images."""
    return engine.try_load_image(DEFAULT_BASE) or engine.try_load_image(build_base_name())


def find_obstacle(engine: Engine) -> str:
    """Why the image can't be made here; empty when it can."""
    if try_load_base(engine) is None:
        return "there is no base image: make images"
    return "" if find_clamd() else "there is no clamd here: apt-get install clamav-daemon"


def find_clamd() -> str | None:
    return shutil.which("clamd", path=PROGRAMS)


def save_standins(engine: Engine) -> str:
    """The name of the image, which is there."""
    ground = try_load_base(engine)
    assert ground is not None
    with tempfile.TemporaryDirectory() as folder:
        signatures = Path(folder) / "eicar.ndb"
        signatures.write_text(f"Everturn.Eicar.Test:0:0:{EICAR.hex()}\n")
        context = {**load_programs(), "signatures/eicar.ndb": signatures, "Dockerfile": FILES / "Dockerfile"}
        content = build_digest(context, {"base": ground.id})
        name = f"{REPOSITORY}:{content[:16]}"
        if engine.try_load_image(name) is None:
            engine.build_image(context, name=name, arguments={"BASE": ground.id}, labels={CONTENT_LABEL: content})
    return name


def load_programs() -> Context:
    """Files by their path in the context; all but the postgres folder are single programs."""
    postgres = load_postgres_binary().parent.parent
    programs = {
        "redis-server": load_redis_binary(),
        "clamd": Path(str(find_clamd())),
        "rclone": Path(sys.executable).with_name("rclone"),
        **{name: FILES / name for name in ("serve", "clamdscan", "redis-cli")},
    }
    linked = (programs["clamd"], *(postgres / "bin" / name for name in ("postgres", "initdb", "pg_isready")))
    return {
        **{f"root/usr/local/bin/{name}": path for name, path in programs.items()},
        "root/init-unprivileged": FILES / "init-unprivileged",
        **{f"root/opt/libraries/{path.name}": path for program in linked for path in find_libraries(program)},
        **{
            name: path
            for part in ("bin", "lib", "share")
            for name, path in load_folder(postgres / part, f"root/opt/postgres/{part}").items()
        },
    }


def find_libraries(program: Path) -> Iterator[Path]:
    """The shared libraries that the base does not have."""
    printed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    for line in printed.splitlines():
        words = line.split()
        if "=>" in words and words[2].startswith("/") and not words[0].startswith(OF_THE_BASE):
            yield Path(words[2])
