"""Whether `make run` serves a page, which one, and why."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from everturn.core.errors import EverturnError
from everturn_local.web.client import WEB, Report, WebClient
from everturn_local.web.node import try_find_node
from everturn_local.web.programs import ProgramFailed

REMEDY = "make setup installs one"


class NoNode(EverturnError):
    """No Node of a supported version was found."""


@dataclass(frozen=True, slots=True)
class WebChoice:
    """The folder of the served page, None without one, and the reason."""

    dist: Path | None
    why: str

    @property
    def env(self) -> dict[str, str]:
        """The variables for the ingress."""
        return {"WEB_DIST": str(self.dist)} if self.dist else {}


def open_web_client(report: Report) -> WebClient:
    """The web client of this checkout. Raises NoNode."""
    node = try_find_node()
    if node is None:
        raise NoNode(REMEDY)
    return WebClient(WEB, node, report)


async def choose_web(environment: Mapping[str, str], *, report: Report) -> WebChoice:
    """Build the client if its sources changed. A failed build is reported, and the platform runs without a page."""
    if given := environment.get("WEB_DIST"):
        return WebChoice(Path(given).absolute(), "WEB_DIST is set")
    try:
        client = open_web_client(report)
        return WebChoice(await client.save_build(), f"built with the Node {client.node.why}")
    except NoNode as absent:
        return WebChoice(None, str(absent))
    except ProgramFailed as failure:
        report(f"the web client could not be built; there is no page. {failure}")
        return WebChoice(None, "its build failed; see above")
