"""What the tests of a bundle are played with: settings, a sandbox and files that they share."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from chat_proc.bootstrap import choose_execution, connect_programs
from chat_proc.bundle_commands.cases import CaseFile
from chat_proc.bundle_commands.playing import Stage
from chat_proc.bundles.bundle import Bundle
from chat_proc.bundles.folders import BundleFolders
from chat_proc.knowledge.spaces import KnowledgePorts
from chat_proc.sandbox.opening import open_sandbox
from chat_proc.sandbox.port import SandboxUnavailable
from chat_proc.settings import WorkerSettings
from chat_proc.tools.web.pages import PageReader
from chat_proc.tools.web.resolver import NameResolver
from everturn.core.clock import SystemClock
from everturn.core.errors import Invalid
from everturn.memory.encoders.hashed import HashedEmbedder

TURN_S: Final = 120.0
"""Time limit of a turn of a test, its programs and its workflow included."""


@asynccontextmanager
async def open_stages(
    folder: Path, *, has_programs: bool
) -> AsyncGenerator[Callable[[Bundle, CaseFile], AbstractAsyncContextManager[Stage]]]:
    """What opens the stage of each test; what tests share ends with the context. Only with `has_programs` is a sandbox
    opened. Raises Invalid if a setting can't be used, or if this installation has no test drivers."""
    try:
        from chat_proc.bundle_commands.opening import open_stage
        from everturn_testing.knowledge.store import MemoryKnowledgeStore
    except ModuleNotFoundError as error:
        raise Invalid("Tests can run only where Everturn was installed with `make setup`.") from error

    async with AsyncExitStack() as stack:
        private = Path(stack.enter_context(TemporaryDirectory(prefix="everturn-tests-", ignore_cleanup_errors=True)))
        settings = build_settings(private).model_copy(update={"secrets_dir": private / "secrets"})
        reader = PageReader()
        stack.push_async_callback(reader.close)
        resolver = NameResolver()
        stack.callback(resolver.close)
        if has_programs:
            opened = await stack.enter_async_context(open_sandbox(choose_execution(settings)))
            opened = connect_programs(opened, resolver)
        else:
            opened = SandboxUnavailable("no test runs a program")
        store = MemoryKnowledgeStore(SystemClock())
        knowledge = KnowledgePorts(store, HashedEmbedder(), reader, settings.git_rules)
        folders = _build_folders(folder, private)
        yield partial(open_stage, settings, private, folders, opened, knowledge, resolver, dict[str, str]())


def build_settings(private: Path) -> WorkerSettings:
    """Settings for opening a bundle without a platform: those of the environment for the sandbox, for secrets and for
    installing libraries. Neither the operator's file nor the model applies."""
    return WorkerSettings(
        mode="development",
        database_url="postgresql://nobody@127.0.0.1:1/none",
        redis_url="redis://127.0.0.1:1/0",
        objects_url=private.as_uri(),
        config=None,
        model="offline",
        fallback_model="",
        codec="native",
        max_iterations=None,
        web_fetch="off",
        collections="off",
        user_memory="off",
        turn_wall_time_s=TURN_S,
        failpoint="",
        clock_steps="",
    )


def _build_folders(folder: Path, private: Path) -> BundleFolders:
    bundles = private / "bundles"
    bundles.mkdir()
    (bundles / "bundle").symlink_to(folder, target_is_directory=True)
    folders = BundleFolders(bundles, {}, "none")
    folders.scan()
    return folders
