"""Our calls to a lakeFS server, through ``lakefs-client``.

The client is at the end of its life: only this file and ``calls`` use it. Its faults are avoided:
it retries no status, never gives up waiting, reads files whole into memory, and crashes on a
download without a file name.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

from ml_assets.errors import SettingsError, StorageError, install
from ml_assets.settings import LakeFs
from ml_assets.store.lakefs.calls import TIMEOUT, Calls, Lost

Unmerged = Literal["conflict", "no changes"]
Pause = Callable[[float], None]
ReceivedT = TypeVar("ReceivedT")
_CHUNK = 1 << 20
_WANTED_BY_STORE = {"azure": {"x-ms-blob-type": "BlockBlob"}}
"""Headers without which an object store refuses a presigned upload."""
_PRESIGNED = (
    "lakeFS gave that address for the upload: see that this machine reaches it, or have lakeFS give"
    " another (pre_signed_endpoint in its blockstore configuration) or none (disable_pre_signed)."
)


@dataclass(frozen=True)
class Recorded:
    """A commit as lakeFS tells of it."""

    id: str
    parents: tuple[str, ...]
    message: str
    metadata: Mapping[str, str]
    time: datetime


@dataclass(frozen=True)
class Merged:
    commit: str


class LakeFsApi:
    """One repository on one server.

    Raises:
        SettingsError: lakefs-client is not installed.
    """

    def __init__(self, server: LakeFs, repository: str, pause: Pause) -> None:
        self.server = server
        self.repository = repository
        self._calls = Calls(server, repository, pause)
        self._client = _client(server)

    # --- refs -------------------------------------------------------------------------------

    def head(self, branch: str) -> str | None:
        """The commit of a branch; None where there is none.

        Raises:
            StorageError: there is no such repository.
        """
        found = self._find("read a branch", self._client.branches_api.get_branch, branch)
        if found is None:
            self._require_repository()
        return found.commit_id if found else None

    def tagged(self, tag: str) -> str | None:
        """The commit of a tag; None where there is none."""
        found = self._find("read a tag", self._client.tags_api.get_tag, tag)
        return found.commit_id if found else None

    def tags(self) -> dict[str, str]:
        found = self._calls.pages("list the tags", self._client.tags_api.list_tags)
        return {tag.id: tag.commit_id for tag in found}

    def create_tag(self, tag: str, commit: str) -> str:
        """Make a tag where the name is free; the commit that it names then.

        Raises:
            StorageError: a branch or a commit has that name.
        """
        from lakefs_client.models import TagCreation

        made = TagCreation(id=tag, ref=commit)
        create = self._client.tags_api.create_tag
        done = self._calls.ask(f"make the tag {tag}", create, made, answers={409: None})
        named = done.commit_id if done else self.tagged(tag)
        if named is None:
            raise StorageError(
                f"{self._calls.where} makes no tag {tag!r}: a branch or a commit there has that"
                " name. Choose another one."
            )
        return named

    def delete_tag(self, tag: str) -> None:
        """Take a tag away; one that is gone already is no fault."""
        delete = self._client.tags_api.delete_tag
        self._calls.ask(f"take the tag {tag} away", delete, tag, answers={404: None})

    def create_branch(self, branch: str, source: str) -> None:
        """Make a hidden branch with a name that nobody else has."""
        from lakefs_client.models import BranchCreation

        made = BranchCreation(name=branch, source=source, hidden=True)
        create = self._client.branches_api.create_branch
        # taken: by ourselves, in a try whose answer was lost
        self._calls.ask("make a branch", create, made, answers={409: None})

    def delete_branch(self, branch: str) -> None:
        """Delete a branch, if it is there."""
        self._find("delete a branch", self._client.branches_api.delete_branch, branch)

    def branches(self, prefix: str) -> list[str]:
        """The names of branches, of hidden ones too."""
        listing = self._client.branches_api.list_branches
        found = self._calls.pages("list the branches", listing, prefix=prefix, show_hidden=True)
        return [branch.id for branch in found]

    # --- commits ----------------------------------------------------------------------------

    def recorded(self, commit: str) -> Recorded | None:
        """A commit by its whole id; None where there is none."""
        found = self._find("read a commit", self._client.commits_api.get_commit, commit)
        return _recorded(found) if found else None

    def log(self, ref: str) -> Iterator[Recorded]:
        """First-parent history, newest first."""
        listing = self._client.refs_api.log_commits
        for found in self._calls.pages("read the log", listing, ref, first_parent=True):
            yield _recorded(found)

    def commit(self, branch: str, before: str, message: str, metadata: Mapping[str, str]) -> str:
        """Commit what is staged on a branch that only we write to; once, whatever answer is lost.

        Args:
            before: the head of the branch.
        """
        from lakefs_client.models import CommitCreation

        def look() -> str | None:
            now = self.head(branch)
            return now if now != before else None

        made = CommitCreation(message=message, metadata=dict(metadata))
        commit = self._client.commits_api.commit
        answers = {400: lambda said: look() or self._uncommitted(said)}
        done = self._calls.ask("commit", commit, branch, made, look=look, answers=answers)
        return done if isinstance(done, str) else done.id

    def merge(
        self,
        source: str,
        target: str,
        message: str,
        metadata: Mapping[str, str],
        look: Callable[[], str | None],
        *,
        dest_wins: bool = False,
    ) -> Merged | Unmerged:
        """Merge a ref into a branch, or say why not.

        Args:
            look: finds the commit of this merge on the branch, where an answer was lost.
            dest_wins: where both sides changed a path, the branch keeps what it has.
        """
        from lakefs_client.models import Merge

        made: Any = Merge(message=message, metadata=dict(metadata))
        if dest_wins:
            made.strategy = "dest-wins"
        done = self._calls.ask(
            "merge",
            self._client.refs_api.merge_into_branch,
            source,
            target,
            merge=made,
            look=look,
            answers={409: lambda _: "conflict", 400: self._unmerged},
        )
        if done in ("conflict", "no changes"):
            return done
        return Merged(done if isinstance(done, str) else done.reference)

    # --- objects ----------------------------------------------------------------------------

    @property
    def presigns(self) -> bool:
        """Return whether the server hands out addresses to upload to."""
        return bool(self._storage.pre_sign_support)

    @cached_property
    def _storage(self) -> Any:
        get = self._client.config_api.get_config
        found = self._calls.again("read its configuration", lambda: get(_request_timeout=TIMEOUT))
        return found.storage_config

    def read(
        self, ref: str, path: str, receive: Callable[[Iterator[bytes]], ReceivedT]
    ) -> ReceivedT | None:
        """Return what is received of an object's chunks, anew in each try; None: there is none."""
        get = self._client.objects_api.get_object

        def call() -> ReceivedT:
            answer = get(
                self.repository, ref, path, _preload_content=False, _request_timeout=TIMEOUT
            )
            try:
                return receive(answer.stream(_CHUNK))
            finally:
                answer.release_conn()

        return self._calls.again(f"read {path}", call, {404: None})

    def upload_presigned(self, branch: str, path: str, file: Path) -> None:
        """Stream a file to the object store and link it; each try has an address of its own."""
        from lakefs_client.models import StagingMetadata

        staging, size = self._client.staging_api, file.stat().st_size
        asked: dict[str, Any] = {"_request_timeout": TIMEOUT}
        wanted = _WANTED_BY_STORE.get(self._storage.blockstore_type, {})

        def upload() -> None:
            place = staging.get_physical_address(
                self.repository, branch, path, presign=True, **asked
            )
            checksum = _put(place.presigned_url, file, size, wanted)
            linked = StagingMetadata(staging=place, checksum=checksum, size_bytes=size)
            staging.link_physical_address(self.repository, branch, path, linked, **asked)

        self._calls.again(f"upload {path}", upload)

    def delete(self, branch: str, path: str) -> None:
        """Stage the removal of an object."""
        self._find(f"remove {path}", self._client.objects_api.delete_object, branch, path)

    # --- inside -----------------------------------------------------------------------------

    def _find(self, doing: str, method: Callable[..., Any], *which: str, **asked: Any) -> Any:
        return self._calls.ask(doing, method, *which, answers={404: None}, **asked)

    def _require_repository(self) -> None:
        if self._find("read the repository", self._client.repositories_api.get_repository) is None:
            raise StorageError(
                f"There is no repository {self.repository} on lakeFS at {self.server.endpoint}."
                " Create it there, or correct ML_ASSETS_SNAPSHOTS."
            )

    def _uncommitted(self, said: str) -> str:
        raise StorageError(f"{self._calls.where} did not commit: {said}.")

    def _unmerged(self, said: str) -> Unmerged:
        if "no changes" in said:
            return "no changes"
        if "dirty" in said or "uncommitted" in said:
            raise StorageError(
                f"{self._calls.where} did not merge: somebody left files on the branch that were"
                f" never committed ({said}). Commit or reset them there, and run again."
            )
        raise StorageError(f"{self._calls.where} did not merge: {said}.")


def _client(server: LakeFs) -> Any:
    try:
        import lakefs_client
        from lakefs_client.client import LakeFSClient
    except ImportError as error:
        raise SettingsError(
            "ML_ASSETS_SNAPSHOTS is an address on lakeFS, and lakefs-client is not installed here."
            f" Remedy: {install('lakefs')}; or unset it."
        ) from error
    configuration: Any = lakefs_client.Configuration(
        host=f"{server.endpoint}/api/v1", username=server.access_key, password=server.secret_key
    )
    configuration.retries = False  # urllib3 would repeat what must be done once
    return LakeFSClient(configuration)


def _put(url: str, file: Path, size: int, wanted: Mapping[str, str]) -> str:
    """Stream a file to a presigned address; the checksum that the object store gives it."""
    import urllib3

    place = f"the object store at {urlsplit(url).netloc}"
    try:
        with file.open("rb") as content:
            answer = urllib3.request(
                "PUT",
                url,
                body=content,
                headers={"Content-Length": str(size), **wanted},
                retries=False,
                timeout=urllib3.Timeout(connect=TIMEOUT[0], read=TIMEOUT[1]),
            )
    except (urllib3.exceptions.HTTPError, ConnectionError, TimeoutError) as error:
        # not its text: that may hold the presigned address
        raise Lost(f"no answer from {place} ({type(error).__name__})", _PRESIGNED) from error
    if answer.status >= 300:
        raise Lost(f"{place} answered {answer.status}", _PRESIGNED)
    return answer.headers.get("ETag", "").strip('"')


def _recorded(found: Any) -> Recorded:
    time = datetime.fromtimestamp(found.creation_date, UTC)
    metadata = dict(getattr(found, "metadata", None) or {})
    return Recorded(found.id, tuple(found.parents), found.message, metadata, time)
