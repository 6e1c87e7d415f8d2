"""Skills that administrators upload to a project, for all of its agents."""

import asyncio
import hashlib
from typing import Annotated, Any, cast

import structlog
from fastapi import APIRouter, Depends, Path, Request
from fastapi.responses import Response
from pydantic import Field

from everturn.core.clock import iso
from everturn.core.errors import Invalid
from everturn.core.identity import Principal, Role
from everturn.skills.archive import MAX_ARCHIVE_BYTES, pack_skill, unpack_upload
from everturn.skills.model import SCHEME
from everturn.skills.projects import PackedSkill, ProjectSkill, ProjectSkillBook
from everturn.skills.reader import NAME_PATTERN, PROJECT_NAMESPACE, read_skill
from ingress.admission.route import AdmittedRequest, AdmittedRoute
from ingress.admission.slots import OpenSlots, download_slots
from ingress.attachments.intake import Intake
from ingress.auth.gate import Me
from ingress.errors import forbidden, unprocessable
from ingress.fields import JsonBody
from ingress.openapi.responses import problems

_log = structlog.get_logger(__name__)

ZIP = "application/zip"


class SkillRoute(AdmittedRoute):
    """A route that accepts an archive."""

    def max_body_bytes_of(self, request: Request) -> int:
        return MAX_ARCHIVE_BYTES


router = APIRouter(prefix="/skills/{tenant}/{project}", route_class=SkillRoute, tags=["skills"])


class SkillOut(JsonBody):
    """A skill of the project."""

    name: str = Field(examples=["refunds"])
    """Its name, as in its SKILL.md."""
    ref: str = Field(examples=["sk:project.refunds"])
    """The ref with which agents read it."""
    description: str = Field(examples=["Decides on refunds. Use it when a customer wants money back."])
    """What it does, and when agents use it."""
    files: int = Field(examples=[3])
    """How many files it has."""
    size: int = Field(examples=[4096])
    """The size of its files together in bytes."""
    sha256: str = Field(examples=["9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"])
    """The hash of the archive that `GET` returns, in hex."""
    added_at: str = Field(examples=["2026-03-01T12:00:00.000Z"])
    """When it was uploaded or replaced, in ISO 8601 and UTC."""


class SkillList(JsonBody):
    """The skills of the project."""

    skills: tuple[SkillOut, ...]
    """The skills, by name."""


class SkillService:
    """Saves and deletes the skills of projects."""

    def __init__(self, book: ProjectSkillBook, intake: Intake) -> None:
        self.book = book
        self._intake = intake

    async def save(self, me: Principal, name: str, upload: bytes) -> tuple[ProjectSkill, bool]:
        """Check, scan and store an archive; whether the skill is new. Raises problems, Conflict."""
        with self._intake.checking(me):
            try:
                packed = await asyncio.to_thread(_read_upload, name, upload)
            except Invalid as error:
                _log.info("Rejected a skill", tenant=me.tenant, project=me.project, fault=error.detail)
                field = {"field": "body", "message": error.detail}
                raise unprocessable(f"The skill was rejected: {error.detail}", errors=[field]) from error
            await self._intake.scan(me, f"{name}.zip", packed.content)
        skill, is_new = await self.book.save(me, packed)
        _log.info(
            "Stored a skill of a project",
            tenant=me.tenant,
            project=me.project,
            user_id=me.user_id,
            skill=name,
            sha256=skill.sha256,
            new=is_new,
        )
        return skill, is_new

    async def delete(self, me: Principal, name: str) -> None:
        """Raises NotFound."""
        await self.book.delete(me, name)
        _log.info("Deleted a skill of a project", tenant=me.tenant, project=me.project, user_id=me.user_id, skill=name)


def _read_upload(name: str, upload: bytes) -> PackedSkill:
    """The checked skill, packed again: what is scanned and stored is what was checked, and nothing else."""
    files = unpack_upload(upload)
    skill = read_skill(name, files, PROJECT_NAMESPACE)
    content = pack_skill(files)
    size = sum(map(len, files.values()))
    return PackedSkill(name, skill.description, size, len(files), hashlib.sha256(content).hexdigest(), content)


async def skill_service(request: Request) -> SkillService:
    """The service of this application."""
    return cast(SkillService, request.app.state.skills)


async def check_admin(me: Me) -> Principal:
    """The caller, who must be an administrator: skills act on the turns of everybody in the project."""
    if Role.ADMIN not in me.roles:
        raise forbidden("Only callers with the role admin can manage the skills of a project.")
    return me


Admin = Annotated[Principal, Depends(check_admin)]
Service = Annotated[SkillService, Depends(skill_service)]
Name = Annotated[
    str, Path(description="The skill's name.", examples=["refunds"], max_length=64, pattern=f"^{NAME_PATTERN}$")
]
_UPLOAD: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "contentMediaType": ZIP}}},
    }
}
_DOWNLOAD: dict[int | str, dict[str, Any]] = {
    200: {"description": "The archive.", "content": {ZIP: {"schema": {"type": "string", "format": "binary"}}}}
}


@router.get("", responses=problems())
async def list_skills(me: Admin, service: Service) -> SkillList:
    """The skills of the project. Every agent of the project has them, beside its own."""
    return SkillList(skills=tuple(map(_build, await service.book.load_all(me))))


@router.put(
    "/{skill}",
    status_code=201,
    responses={**problems(408, 409, 413, 415), 200: {"description": "It was replaced, or is as it was."}},
    openapi_extra=_UPLOAD,
)
async def put_skill(request: Request, response: Response, me: Admin, service: Service, skill: Name) -> SkillOut:
    """Add a skill to the project, or replace the one of this name: a ZIP archive with SKILL.md, or with one folder that
    has it.

    It is checked like the skills of bundles, and scanned like the files of messages. Turns that begin from now on use
    it; those that run keep the skills with which they began.
    """
    saved, is_new = await service.save(me, skill, await cast(AdmittedRequest, request).body())
    response.status_code = 201 if is_new else 200
    return _build(saved)


@router.get("/{skill}", response_class=Response, responses={**problems(), **_DOWNLOAD})
async def get_skill(
    me: Admin, service: Service, skill: Name, slots: Annotated[OpenSlots, Depends(download_slots)]
) -> Response:
    """The files of a skill, as a ZIP archive."""
    with slots.holding(me):
        content = await service.book.load_content(me, skill)
        return Response(content, media_type=ZIP, headers={"Content-Disposition": f'attachment; filename="{skill}.zip"'})


@router.delete("/{skill}", status_code=204, responses=problems())
async def delete_skill(me: Admin, service: Service, skill: Name) -> None:
    """Delete a skill of the project. Turns that begin from now on don't have it."""
    await service.delete(me, skill)


def _build(skill: ProjectSkill) -> SkillOut:
    return SkillOut(
        name=skill.name,
        ref=f"{SCHEME}{PROJECT_NAMESPACE}.{skill.name}",
        description=skill.description,
        files=skill.file_count,
        size=skill.size,
        sha256=skill.sha256,
        added_at=iso(skill.added_at),
    )
