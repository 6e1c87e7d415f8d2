"""Chooses and reads the skills of a bundle, and those of the platform.

Whatever is wrong is refused with the file, the line and what to do. Nothing of a skill is executed or imported. Reading
takes time in proportion to all files, and for YAML more, so it belongs in a thread.
"""

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files as package_files
from importlib.resources.abc import Traversable
from typing import Final, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from everturn.core.errors import Invalid
from everturn.core.settings import explain_errors
from everturn.skills.model import INSTRUCTIONS, SKILLS_FOLDER, Skill, Skills, render_catalog
from everturn.skills.reader import NAMESPACE, PLATFORM_NAMESPACE, RESERVED_NAMESPACES, decode_text, read_skill

DESCRIPTOR: Final = "skills_descriptor.py"
DESCRIPTOR_LIST: Final = "SKILLS_SPECS"

MAX_SKILLS: Final = 50
"""For one agent."""
MAX_CATALOG_CHARS: Final = 16_000
"""Characters of the lines about all skills in the prompt: about 4,000 tokens in each request."""
MAX_DESCRIPTOR_BYTES: Final = 64 * 1024
MAX_SPECS: Final = 100


class SkillSpec(BaseModel):
    """One entry of `[[skills]]` or `SKILLS_SPECS`: a folder of the bundle, or all skills of a namespace."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str | None = Field(default=None, min_length=1, max_length=1024)
    """A skill's folder, or a folder of skills."""
    namespace: str | None = Field(default=None, min_length=1, max_length=64)
    """`public` for the skills of the platform, otherwise a folder under `skills/` of the bundle."""

    @model_validator(mode="after")
    def check_one(self) -> "SkillSpec":
        if (self.path is None) is (self.namespace is None):
            raise ValueError('Give either a path, such as "skills/support/refunds", or a namespace, such as "public".')
        return self


@dataclass(frozen=True, slots=True)
class _Named:
    """A spec, and where it is written."""

    where: str
    spec: SkillSpec


def read_skills(
    files: Mapping[str, bytes], specs: Sequence[SkillSpec] | None = None, platform: Sequence[Skill] = ()
) -> Skills:
    """The skills that a bundle offers. `files` are those of the bundle, `specs` the `[[skills]]` of its bundle.toml.

    If neither these nor skills_descriptor.py are there, it offers all skills in its own folder `skills`. Raises
    Invalid.
    """
    named = [_Named(f"bundle.toml, [[skills]] number {number}", spec) for number, spec in enumerate(specs or (), 1)]
    if DESCRIPTOR in files:
        if specs is not None:
            raise Invalid(f"Name the skills either in bundle.toml or in {DESCRIPTOR}, not in both.")
        named = _read_descriptor(files[DESCRIPTOR])
    elif specs is None and any(path.startswith(f"{SKILLS_FOLDER}/") for path in files):
        named = [_Named(SKILLS_FOLDER, SkillSpec(path=SKILLS_FOLDER))]
    found = _find_folders(files)
    folders: dict[str, None] = {}
    chosen: list[Skill] = []
    for each in named:
        if each.spec.namespace == PLATFORM_NAMESPACE:
            chosen += platform
        else:
            folders |= dict.fromkeys(_choose_folders(each, found))
    chosen += [_read_bundle_skill(folder, _files_below(files, folder)) for folder in folders]
    return _check_all(chosen)


def _check_all(skills: Sequence[Skill]) -> Skills:
    by_id: dict[str, Skill] = {}
    for skill in skills:
        earlier = by_id.setdefault(skill.id, skill)
        if earlier is not skill:
            raise Invalid(f"Two skills are named {skill.id}. Rename one of them, or move it into another namespace.")
    if len(by_id) > MAX_SKILLS:
        raise Invalid(f"There are {len(by_id)} skills; one agent can have at most {MAX_SKILLS}.")
    if (chars := len(render_catalog(by_id.values()))) > MAX_CATALOG_CHARS:
        raise Invalid(
            f"The descriptions of the skills have {chars} characters in total; at most {MAX_CATALOG_CHARS} are "
            "allowed, because each request contains them. Shorten them, or offer fewer skills."
        )
    return Skills(by_id.values())


def _read_descriptor(data: bytes) -> list[_Named]:
    """The list SKILLS_SPECS of skills_descriptor.py, which is parsed and not executed."""
    if len(data) > MAX_DESCRIPTOR_BYTES:
        raise Invalid(f"{DESCRIPTOR} is longer than {MAX_DESCRIPTOR_BYTES // 1024} KiB.")
    text = decode_text(DESCRIPTOR, data)
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise Invalid(f"{DESCRIPTOR}, line {error.lineno or 1}: this is not valid Python: {error.msg}.") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise Invalid(f"{DESCRIPTOR} can't be parsed as Python.") from error
    found = [value for node in tree.body if (value := _assigned(node)) is not None]
    if len(found) != 1:
        count = "does not assign" if not found else "assigns several times"
        raise Invalid(f'{DESCRIPTOR} {count} {DESCRIPTOR_LIST}. Write {DESCRIPTOR_LIST} = [{{"path": "skills"}}] once.')
    line = f"{DESCRIPTOR}, line {found[0].lineno}"
    try:
        value: object = ast.literal_eval(found[0])
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError) as error:
        raise Invalid(
            f"{line}: {DESCRIPTOR_LIST} must be a list of literals, because the file is read and not executed."
        ) from error
    if not isinstance(value, list | tuple):
        raise Invalid(f"{line}: {DESCRIPTOR_LIST} must be a list.")
    rows = cast("Sequence[object]", value)
    if len(rows) > MAX_SPECS:
        raise Invalid(f"{line}: {DESCRIPTOR_LIST} has {len(rows)} entries; at most {MAX_SPECS} are allowed.")
    nodes = found[0].elts if isinstance(found[0], ast.List | ast.Tuple) else []
    named: list[_Named] = []
    for number, row in enumerate(rows):
        where = f"{DESCRIPTOR}, line {nodes[number].lineno if number < len(nodes) else found[0].lineno}"
        try:
            named.append(_Named(where, SkillSpec.model_validate(row)))
        except ValidationError as error:
            raise Invalid(f"{where}: {explain_errors(error)[0]}") from error
    return named


def _assigned(node: ast.stmt) -> ast.expr | None:
    match node:
        case (
            ast.Assign(targets=[ast.Name(id=name)], value=value)
            | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
        ) if name == DESCRIPTOR_LIST:
            return value
        case _:
            return None


def _find_folders(files: Iterable[str]) -> list[str]:
    """The folders of all skills; a SKILL.md inside another skill is a file of that skill."""
    folders: list[str] = []
    for path in sorted(files, key=lambda path: (path.count("/"), path)):
        folder, _, name = path.rpartition("/")
        if name.lower() != INSTRUCTIONS.lower() or any(
            folder == outer or folder.startswith(f"{outer}/") for outer in folders
        ):
            continue
        if name != INSTRUCTIONS:
            raise Invalid(f"{path}: the file must be named {INSTRUCTIONS}.")
        if folder.count("/") < (2 if folder.startswith(f"{SKILLS_FOLDER}/") else 1):
            raise Invalid(
                f"{path}: a skill is a folder in the folder of its namespace. Move it to "
                f"{SKILLS_FOLDER}/<namespace>/<skill>/{INSTRUCTIONS}."
            )
        folders.append(folder)
    return sorted(folders)


def _choose_folders(named: _Named, folders: Sequence[str]) -> list[str]:
    spec = named.spec
    if spec.namespace is not None:
        if not NAMESPACE.fullmatch(spec.namespace):
            raise Invalid(f"{named.where}: the namespace {spec.namespace!a} can have a-z, 0-9, _ and - only.")
        base = f"{SKILLS_FOLDER}/{spec.namespace}"
    else:
        base = (spec.path or "").removeprefix("./").rstrip("/")
        if base.startswith("/") or any(part in ("", ".", "..") for part in base.split("/")):
            raise Invalid(f"{named.where}: the path {spec.path!a} must be a folder of the bundle, without '..'.")
    chosen = [folder for folder in folders if folder == base or folder.startswith(f"{base}/")]
    if not chosen:
        hint = f" The platform's skills have the namespace {PLATFORM_NAMESPACE}." if spec.namespace else ""
        raise Invalid(f"{named.where}: there is no {INSTRUCTIONS} below {base}/.{hint}")
    return chosen


def _files_below(files: Mapping[str, bytes], folder: str) -> dict[str, bytes]:
    prefix = f"{folder}/"
    return {path.removeprefix(prefix): data for path, data in sorted(files.items()) if path.startswith(prefix)}


def _read_bundle_skill(folder: str, files: Mapping[str, bytes]) -> Skill:
    """The namespace is the name of the folder around it."""
    namespace = folder.rpartition("/")[0].rpartition("/")[2]
    if (owner := RESERVED_NAMESPACES.get(namespace)) is not None:
        raise Invalid(f"{folder}: the namespace {namespace} is that of {owner}. Use another name.")
    return read_skill(folder, files, namespace)


@cache
def load_platform_skills() -> tuple[Skill, ...]:
    """The skills that Everturn ships, with the namespace `public`. Reads their files once."""
    root = package_files("chat_proc.skills").joinpath(PLATFORM_NAMESPACE)
    skills: list[Skill] = []
    for folder in sorted(root.iterdir(), key=lambda entry: entry.name):
        files = dict(_walk(folder, ""))
        skills.append(read_skill(folder.name, files, PLATFORM_NAMESPACE))
    return tuple(skills)


def _walk(folder: Traversable, prefix: str) -> Iterable[tuple[str, bytes]]:
    for entry in folder.iterdir():
        if entry.is_file():
            yield f"{prefix}{entry.name}", entry.read_bytes()
        elif entry.name != "__pycache__":
            yield from _walk(entry, f"{prefix}{entry.name}/")
