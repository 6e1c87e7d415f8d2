"""Finds the bundles that an operator provides: those in the folders of BUNDLES_DIR, those from git, and those that are
tables of the configuration file."""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from chat_proc.bundles.bundle import Bundle, guess_id, read_folder, sign_folder
from chat_proc.bundles.manifest import MANIFEST, BadBundle, BundleProps, Manifest
from chat_proc.bundles.repositories import Fetched
from everturn.bundles.registry import DEFAULT_BUNDLE
from everturn.core.loops import guarded

MAX_BUNDLES: Final = 200


@dataclass(frozen=True, slots=True)
class Found:
    """What there is of one id: the newest content that can be read, and why there is newer content that can't. Without
    both, the content is not there yet. While there is no bundle, the version before continues, also the stored one
    after a restart, unless `continues` is False."""

    bundle: Bundle | None = None
    error: str = ""
    continues: bool = True


@dataclass(slots=True)
class _Folder:
    """One folder with what was last read from it. `signature` is that of the last scan, `read` that of the content.
    `bundle_id` is a guess while no content could be read."""

    bundle_id: str
    found: Found = field(default_factory=Found)
    signature: object = None
    read: object = None


class BundleFolders:
    """Scans the folders again and again. A changed folder is read once two scans find it the same, so that no version
    is half of an edit. Not thread-safe: one scan at a time."""

    def __init__(
        self,
        folder: Path | None,
        props: Mapping[str, BundleProps],
        default_bundle: str,
        *,
        list_fetched: Callable[[], Mapping[str, Fetched]] = dict[str, Fetched],
    ) -> None:
        self._folder = folder
        self._props = props
        self._default_bundle = default_bundle
        self._list_fetched = list_fetched
        self._folders: dict[Path, _Folder] = {}
        self._overridden: dict[str, tuple[Bundle, Bundle | None]] = {}
        """By id, a bundle as it was found, and the same with the operator's overrides."""

    def scan(self) -> dict[str, Found]:
        """All bundles by id. Reads files, so it belongs in a thread. Raises BadBundle if BUNDLES_DIR can't be read.

        Whatever one folder, repository or table contains becomes the error of its bundle only."""
        paths, fetched = self._list_folders(), self._list_fetched()
        self._folders = {
            path: self._folders.get(path) or _Folder(_show_name(path))
            for path in (*paths, *(each.folder for each in fetched.values()))
        }
        found = {bundle_id: self._find_fetched(each) for bundle_id, each in fetched.items()}
        for path in paths:
            _refresh(self._folders[path], path)
        # The name of a folder is unique, so no other folder can take the id of a bundle that has its name.
        for path in sorted(paths, key=lambda path: self._folders[path].bundle_id != path.name):
            folder = self._folders[path]
            bundle_id = folder.bundle_id
            earlier = found.get(bundle_id)
            if earlier is None or (earlier.bundle is None and bundle_id not in fetched):
                errors = (earlier.error if earlier else "", folder.found.error)
                found[bundle_id] = replace(folder.found, error=" ".join(filter(None, errors)))
            else:
                error = f"The folder {_show_name(path)} has the id {bundle_id} of another bundle."
                found[bundle_id] = replace(earlier, error=f"{error} Change one of the two ids.")
        for bundle_id in (*self._props, self._default_bundle):
            found.setdefault(bundle_id, self._find_table(bundle_id))
        if self._default_bundle != DEFAULT_BUNDLE and DEFAULT_BUNDLE in found:
            error = (
                f"The id {DEFAULT_BUNDLE} means the default bundle, which is {self._default_bundle}. Choose another id."
            )
            found[DEFAULT_BUNDLE] = Found(error=error, continues=False)
        self._overridden = {each: made for each, made in self._overridden.items() if each in found}
        return {bundle_id: self._override(bundle_id, each) for bundle_id, each in found.items()}

    def find_folder(self, bundle_id: str) -> Path | None:
        """Where the newest content of this bundle is read; None if it has no folder here."""
        if (fetched := self._list_fetched().get(bundle_id)) is not None:
            return fetched.folder
        paths = (path for path, folder in self._folders.items() if folder.bundle_id == bundle_id)
        return min(paths, key=lambda path: (path.name != bundle_id, path), default=None)

    def override(self, bundle: Bundle) -> Bundle:
        """The bundle with what the operator has set. Raises BadBundle."""
        return bundle.override(self._props.get(bundle.id))

    def _find_fetched(self, fetched: Fetched) -> Found:
        """The newest content of a repository."""
        folder = self._folders[fetched.folder]
        if fetched.folder.exists():
            _refresh(folder, fetched.folder.resolve())
        return Found(folder.found.bundle, " ".join(filter(None, (fetched.error, folder.found.error))))

    def _find_table(self, bundle_id: str) -> Found:
        """The bundle without a folder that a table of the configuration file makes. Instructions make it one; a table
        with other keys only is meant for a bundle that exists, so its id is probably a typing mistake."""
        props = self._props.get(bundle_id)
        if bundle_id == DEFAULT_BUNDLE or (props is not None and props.instructions):
            return Found(Bundle(Manifest(id=bundle_id)))
        if props is None:
            error = (
                f"No folder and no repository has the bundle {bundle_id}, which is the default one. If you changed its "
                "id, start `everturn bundle run` again, or set ai.default_bundle to the new id."
            )
            return Found(error=error, continues=True)
        error = (
            f"No folder and no repository has the bundle {bundle_id}, which the configuration file names. Correct this "
            f"id, or set instructions in [bundles.{bundle_id}] to make it a bundle."
        )
        return Found(error=error, continues=bundle_id == self._default_bundle)

    def _override(self, bundle_id: str, found: Found) -> Found:
        if found.bundle is None:
            return found
        # Only for new content, because this computes the digest of all files.
        content, result = self._overridden.get(bundle_id, (None, None))
        if content is not found.bundle:
            with _catching(bundle_id) as caught:
                result = self.override(found.bundle)
            if caught.error:
                return Found(error=" ".join(filter(None, (found.error, caught.error))))
        self._overridden[bundle_id] = found.bundle, result
        return replace(found, bundle=result)

    def _list_folders(self) -> list[Path]:
        if self._folder is None:
            return []
        try:
            if (self._folder / MANIFEST).is_file():
                raise BadBundle(f"BUNDLES_DIR={self._folder} is a bundle. Name the folder that contains it.")
            found = sorted(path for path in self._folder.iterdir() if _is_shown(path))
        except OSError as error:
            raise BadBundle(f"BUNDLES_DIR={self._folder} can't be read: {error.strerror}.") from error
        if len(found) > MAX_BUNDLES:
            raise BadBundle(f"BUNDLES_DIR={self._folder} has {len(found)} folders; {MAX_BUNDLES} are allowed.")
        return found


def _show_name(path: Path) -> str:
    """The name of a folder, which can have bytes that are no text."""
    return path.name if path.name.isprintable() else ascii(path.name)[1:-1]


def _is_shown(path: Path) -> bool:
    try:
        return path.is_dir() and not path.name.startswith(".")
    except OSError:
        # Such as a link that leads to a place that this worker may not see. The error of reading it says why.
        return True


def _refresh(folder: _Folder, path: Path) -> None:
    read: object = None
    with _catching(path.name) as caught:
        read = signature = sign_folder(path)
        is_first, is_settled = folder.signature is None, folder.signature == signature
        folder.signature = signature
        if folder.read == signature or not (is_first or is_settled):
            return
        bundle = read_folder(path)
        if sign_folder(path) == signature:
            folder.found, folder.read, folder.bundle_id = Found(bundle), signature, bundle.id
    if caught.error:
        if folder.found.bundle is None:
            with _catching(path.name):
                folder.bundle_id = guess_id(path) or _show_name(path)
        folder.found, folder.read = replace(folder.found, error=caught.error), read


class _Caught:
    """The result of a block in `_catching`."""

    error: str = ""


@contextmanager
def _catching(name: str) -> Generator[_Caught]:
    """Continue after whatever the content of one bundle raises, and say why it can't be used."""
    caught = _Caught()
    with guarded("bundle_scan", health=None, bundle=ascii(name)) as guard:
        try:
            yield caught
        except BadBundle as error:
            caught.error = error.detail
    if guard.error is not None:
        kind = type(guard.error).__name__
        caught.error = f"It could not be read ({kind}). The log of the worker has the details."
