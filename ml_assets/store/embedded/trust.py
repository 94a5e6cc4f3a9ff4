"""Decides which states count: with a key, those that a trusted key signed.

In the embedded store a commit is signed: its id is the digest of all its content. On lakeFS, whose
ids are the server's word, the list of a commit's files with their digests is signed:
``store.lakefs.repository``.
"""

from pathlib import Path

from ml_assets.errors import UntrustedState
from ml_assets.settings import read_signing
from ml_assets.store.embedded.refs import Refs, graft_name
from ml_assets.store.signing import Keys, Signature, public_key
from ml_assets.store.snapshots import CommitId

_COMMIT = "application/vnd.ml_assets.commit"
_GRAFT = "application/vnd.ml_assets.graft"
_REMEDY = (
    "Nothing is read from it, and nothing is built on it. Put the store back from a backup, or find"
    " out who wrote it."
)


def given_keys() -> Keys:
    """The keys of the environment: ML_ASSETS_SIGNING_KEY, ML_ASSETS_TRUSTED_KEYS, ML_ASSETS_STORE.

    Raises:
        SettingsError: one is no key, or the name is none.
    """
    signing = read_signing()
    trusted = [public_key(key, "ML_ASSETS_TRUSTED_KEYS") for key in signing.trusted]
    return Keys.of(signing.key, trusted, signing.store)


def require_vouched(
    keys: Keys, kind: str, content: bytes, signature: Signature | None, what: str
) -> None:
    """Hold content of this store to its signature.

    Args:
        what: names it, and where it is, in an error.

    Raises:
        UntrustedState: nobody signed it, or somebody whose word does not count.
    """
    refused = keys.refusal(keys.of_store(kind), content, signature)
    if refused:
        raise UntrustedState(f"{what}, which {refused}. {_REMEDY} {_way_out(keys, signature)}")


def _way_out(keys: Keys, signature: Signature | None) -> str:
    """What else may be the reason, and what to do then."""
    if signature is None:
        return (
            "A store that was begun without a signing key has no signatures. To use a key, start"
            " clean: ml-assets ops reset."
        )
    if signature.key not in keys.trusted:
        return "If that key is to count, add it to ML_ASSETS_TRUSTED_KEYS."
    named = f"is {keys.store!r}" if keys.store else "is not set"
    return f"If the store was begun under another name, set that: ML_ASSETS_STORE {named}."


class Trust:
    """Signs the commits of one store, and holds those that are read to their signatures."""

    def __init__(self, root: Path, refs: Refs) -> None:
        self.keys = given_keys()
        self._root = root
        self._refs = refs
        self._vouched: set[str] = set()

    def sign(self, commit: CommitId) -> Signature | None:
        """Vouch for a commit that this process wrote."""
        return self.keys.sign(self.keys.of_store(_COMMIT), commit.encode())

    def sign_graft(self, commit: CommitId, parent: CommitId | None) -> Signature | None:
        """Vouch for where history goes on behind a commit whose own parents this process drops."""
        return self.keys.sign(self.keys.of_store(_GRAFT), graft_name(commit, parent).encode())

    def require(self, commit: CommitId, ref: str = "") -> None:
        """Hold a commit to its signature; each once in the life of this object.

        Args:
            ref: what names it, if anything does.

        Raises:
            UntrustedState: nobody signed it, or somebody whose word does not count.
        """
        if commit in self._vouched:
            return
        named = ref or commit[:12]
        what = f"{named!r} of the snapshot store {self._root} is commit {commit[:12]}"
        signature = self._refs.signature(commit)
        require_vouched(self.keys, _COMMIT, commit.encode(), signature, what)
        self._vouched.add(commit)

    def counts(self, commit: CommitId) -> bool:
        """Return whether a commit is signed by a key that counts."""
        try:
            self.require(commit)
        except UntrustedState:
            return False
        return True

    def ends(self) -> set[CommitId]:
        """Return what branches and tags name, all signed: on a forged one no collection is decided.

        Raises:
            UntrustedState: one names what no key that counts signed.
        """
        named = self._refs.named()
        for ref, commit in named.items():
            self.require(commit, ref)
        return set(named.values())

    def grafts(self) -> dict[CommitId, CommitId | None]:
        """Return where history goes on behind commits, all signed: what they lead to counts with
        them.

        Raises:
            UntrustedState: nobody signed one, or somebody whose word does not count.
        """
        found: dict[CommitId, CommitId | None] = {}
        for commit, parent, signature in self._refs.grafts():
            name = graft_name(commit, parent)
            if name not in self._vouched:
                to = f"leads to commit {parent[:12]}" if parent else "ends the history"
                what = f"A graft in the snapshot store {self._root} {to} behind {commit[:12]}"
                require_vouched(self.keys, _GRAFT, name.encode(), signature, what)
                self._vouched.add(name)
            found[commit] = parent
        return found

    def inherit(self, parent: CommitId) -> None:
        """A parent counts with the commit that names it: its id is part of what was signed."""
        self._vouched.add(parent)
