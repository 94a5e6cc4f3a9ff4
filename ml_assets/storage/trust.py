"""Which commits count: those a trusted key signed. A commit's id is the digest of all in it."""

from pathlib import Path

from ml_assets.errors import UntrustedState
from ml_assets.settings import read_signing
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


def keys_of(root: Path) -> Keys:
    """The keys that count for a store, from the environment or its own folder.

    Raises:
        SettingsError: a key in the environment is none.
    """
    signing = read_signing()
    trusted = [public_key(key, "ML_ASSETS_TRUSTED_KEYS") for key in signing.trusted]
    return Keys.of(signing.key, trusted, root / LOCAL_KEY)


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
        signature = self._refs.signature(commit)
        what = f"{ref!r} of the snapshot store {self._root} is commit {commit[:12]}"
        if signature is None:
            raise UntrustedState(f"{what}, which nobody signed. {_REMEDY}")
        if not self.keys.vouched(_COMMIT, commit.encode(), signature):
            raise UntrustedState(
                f"{what}; its signature is of no trusted key, or of something else. It names key"
                f" {key_name(signature.key)}: {signature.key}. {_REMEDY} If that key is to count,"
                " add it to ML_ASSETS_TRUSTED_KEYS."
            )
        self._vouched.add(commit)
