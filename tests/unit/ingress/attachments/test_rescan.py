"""A rescan covers everything once, and completes an interrupted one."""

from typing import Any

import pytest

from everturn.core.errors import NotFound, Unavailable
from everturn.core.ids import ArtifactId
from everturn.files.ports import ScanTarget
from ingress.attachments.antivirus import Infected, NoScan, Unscannable
from ingress.attachments.rescan import Rescan, Tally


class World:
    """Stored files, what the antivirus says of each, and what happened to them in order."""

    def __init__(self, **said: str) -> None:
        self.files = {
            name: ScanTarget(ArtifactId(name), f"key/{name}", 1, "old", what == "half") for name, what in said.items()
        }
        self.said = said
        self.done: list[tuple[str, ...]] = []
        world: Any = self
        self.rescan = Rescan(world, world, world)

    async def load_verdict(self) -> str:
        return "new"

    async def load_outdated(self, _: str | None, *, after: str, limit: int) -> tuple[ScanTarget, ...]:
        return tuple(self.files[name] for name in sorted(self.files) if name > after)[:1]

    async def load(self, what: str, *, max_bytes: int = 0) -> Any:
        name = what.removeprefix("key/")
        if self.said.get(name, "missing") == "missing":
            raise NotFound(what)
        return name.encode() if max_bytes else self.files[name]

    async def scan(self, data: bytes) -> str:
        match self.said[data.decode()]:
            case "infected":
                raise Infected("it is infected (X)")
            case "deep":
                raise Unscannable("too deep")
            case _:
                return "new"

    async def save_verdict(self, key: str, verdict: str) -> None:
        self.done.append(("verdict", key, verdict))

    async def revoke(self, key: str) -> int:
        self.done.append(("revoke", key))
        return 1

    async def delete(self, keys: list[str]) -> int:
        self.done.extend(("delete", key) for key in keys)
        return 1


async def test_every_file_is_looked_at_once_and_counted() -> None:
    world = World(a="clean", b="infected", c="deep", d="missing", e="half")

    assert await world.rescan.run(everything=False) == Tally(clean=1, revoked=2, unscannable=1, missing=1)
    assert world.done[0] == ("verdict", "key/a", "new")


async def test_a_file_is_refused_before_it_is_deleted_and_absent_after() -> None:
    world = World(a="infected")

    await world.rescan.run(everything=True)

    assert world.done == [
        ("revoke", "key/a"),
        ("delete", "key/a"),
        ("verdict", "key/a", "revoked: it is infected (X)"),
    ]


async def test_without_an_antivirus_nothing_is_called_clean() -> None:
    world: Any = World(a="clean")

    with pytest.raises(Unavailable):
        await Rescan(world, world, NoScan()).run(everything=True)
    assert world.done == []


async def test_revoking_what_is_not_there_is_not_found() -> None:
    with pytest.raises(NotFound):
        await World().rescan.revoke(ArtifactId("a"), "reported")
