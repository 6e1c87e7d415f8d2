"""Files by their rn, the address that a file keeps in events, fetches and exports."""

from collections.abc import Mapping
from typing import Annotated, Any, cast

from fastapi import APIRouter, Depends
from pydantic import BaseModel, ConfigDict, Field

from everturn.errors import Invalid
from everturn.model.artifacts import Rn, parse_rn
from everturn.timeline.view_parts import build_file_view
from ingress.admission.responses import problems
from ingress.admission.route import BodyScopedRoute
from ingress.auth.gate import MeInBody
from ingress.errors import unprocessable
from ingress.resources.service import FileService, file_service

MAX_RN_CHARS = 8192
_EXAMPLE = (
    "ef:default:default:chatbot:upload:ann:conv_01890a5d-ac96-774b-bcce-b302099a8057"
    ":turn_01890a5d-ac96-774b-bcce-b302099a8058:attachment:turn_01890a5d-ac96-774b-bcce-b302099a8058/attachments/a.csv"
)


class ByRnIn(BaseModel):
    """The file to find."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rn: str = Field(max_length=MAX_RN_CHARS, examples=[_EXAMPLE])


class FoundFileOut(BaseModel):
    """A file and the path of its content. `size` is in bytes, `url` is a path on this server."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    artifact_id: str
    filename: str
    mime: str
    size: int
    url: str


class RnRoute(BodyScopedRoute):
    """Its tenant and project stand in the rn."""

    def read_scope(self, body: Any) -> tuple[str, str]:
        rn = _read_rn(cast(Mapping[str, Any], body).get("rn") if isinstance(body, dict) else None)
        return rn.tenant, rn.project


router = APIRouter(route_class=RnRoute, tags=["files"])


@router.post("/by-rn", responses=problems(408, 413, 415))
async def find_by_rn(me: MeInBody, files: Annotated[FileService, Depends(file_service)], body: ByRnIn) -> FoundFileOut:
    """The caller's file with this rn. Files of others get the same 404 as files that don't exist."""
    artifact = await files.load_by_rn(me, _read_rn(body.rn))
    view = build_file_view(artifact, tenant=me.tenant, project=me.project)
    return FoundFileOut(
        artifact_id=view.artifact_id, filename=view.filename, mime=view.mime, size=view.size, url=view.url
    )


def _read_rn(text: object) -> Rn:
    """Raises a 422 problem that names the field."""
    try:
        if not isinstance(text, str):
            raise Invalid("It must be a string.")
        return parse_rn(text)
    except Invalid as error:
        raise unprocessable("The rn can't be read.", errors=[{"field": "rn", "message": error.detail}]) from error
