"""Which states count: those a trusted key signed.

In the embedded store a commit is signed: its id is the digest of all in it. On lakeFS, whose ids
are the server's word, the list of a commit's files with their digests is: ``storage.manifest``.
"""

from pathlib import Path

from ml_assets.errors import UntrustedState
from ml_assets.settings import is_lakefs, read_signing, state_folder
from ml_assets.storage.refs import Refs
from ml_assets.storage.signing import Keys, Signature, key_name, public_key
from ml_assets.storage.snapshots import CommitId

LOCAL_KEY = "keys/local.key"
PUBLIC_KEY = "keys/local.pub"
_COMMIT = "application/vnd.ml_assets.commit"
_REMEDY = (
    "Nothing is read from it, and nothing is built on it. Put the store back from a backup, or find"
    " out who wrote that commit."
)


def keys_of(location: str | Path) -> Keys:
    """The keys that count for a store, from the environment or a local file.

    Raises:
        SettingsError: a key in the environment is none.
    """
    signing = read_signing()
    trusted = [public_key(key, "ML_ASSETS_TRUSTED_KEYS") for key in signing.trusted]
    return Keys.of(signing.key, trusted, local_key(location))


def local_key(location: str | Path) -> Path:
    """Where the key of one's own lies: in the store's folder; of a server, in the state folder."""
    shared = is_lakefs(str(location))
    return (state_folder() if shared else Path(location)) / LOCAL_KEY


def local_public_key(location: str | Path) -> str:
    """The public half of the local key; empty where none was made."""
    file = local_key(location).with_suffix(".pub")
    return file.read_text().strip() if file.is_file() else ""


def require_vouched(
    keys: Keys, kind: str, content: bytes, signature: Signature | None, what: str
) -> None:
    """Hold content to its signature.

    Args:
        what: names it, and where it is, in an error.

    Raises:
        UntrustedState: nobody signed it, or somebody whose word does not count.
    """
    if signature is None:
        raise UntrustedState(f"{what}, which nobody signed. {_REMEDY}")
    if not keys.vouched(kind, content, signature):
        raise UntrustedState(
            f"{what}; its signature is of no trusted key, or of something else. It names key"
            f" {key_name(signature.key)}: {signature.key}. {_REMEDY} If that key is to count,"
            " add it to ML_ASSETS_TRUSTED_KEYS."
        )


class Trust:
    """Signs the commits of one store, and holds those that are read to their signatures."""

    def __init__(self, root: Path, refs: Refs) -> None:
        self.keys = keys_of(root)
        self._root = root
        self._refs = refs
        self._vouched: set[CommitId] = set()

    def sign(self, commit: CommitId) -> Signature:
        """Vouch for a commit that this process wrote."""
        return self.keys.sign(_COMMIT, commit.encode())

    def require(self, commit: CommitId, ref: str) -> None:
        """Hold a commit that a ref names to its signature; each once in the life of this object.

        Raises:
            UntrustedState: nobody signed it, or somebody whose word does not count.
        """
        if commit in self._vouched:
            return
        what = f"{ref!r} of the snapshot store {self._root} is commit {commit[:12]}"
        signature = self._refs.signature(commit)
        require_vouched(self.keys, _COMMIT, commit.encode(), signature, what)
        self._vouched.add(commit)
