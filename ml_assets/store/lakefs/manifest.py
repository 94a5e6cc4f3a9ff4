"""The signed list of what a state on lakeFS holds: path -> digest and size, in a file of its own.

lakeFS has no compare-and-swap on a branch, and its checksums are no proof of content. One file that
every publish changes gives both: a merge that did not see the one before conflicts in it, and
whoever reads holds every file to the digest that a trusted key signed.
"""

import json
from dataclasses import dataclass, field

from ml_assets.errors import StorageError
from ml_assets.spec.canonical import canonical_json
from ml_assets.store.embedded.trees import Tree
from ml_assets.store.embedded.trust import require_vouched
from ml_assets.store.signing import Keys, Signature

MANIFEST = "_ml_assets/manifest.json"
_KIND = "application/vnd.ml_assets.manifest"
_SCHEMA = 1


@dataclass(frozen=True)
class State:
    """What a commit holds, and the work that made it."""

    tree: Tree = field(default_factory=dict)
    run_key: str = ""
    base: str = ""
    """The commit that it was made on top of."""


def seal(state: State, keys: Keys) -> bytes:
    """The manifest of a state, signed where a key is set."""
    content = {
        "schema": _SCHEMA,
        "tree": {path: list(entry) for path, entry in state.tree.items()},
        "run_key": state.run_key,
        "base": state.base,
    }
    signature = keys.sign(keys.of_store(_KIND), canonical_json(content))
    signed = [signature.key, signature.value] if signature else None
    return canonical_json({"state": content, "signature": signed})


def unseal(data: bytes, keys: Keys, what: str) -> State:
    """The state that a manifest tells of.

    Args:
        what: names it, and where it is, in an error.

    Raises:
        UntrustedState: its signature does not count.
        StorageError: it is no manifest of this version.
    """
    try:
        sealed = json.loads(data)
        content, signed = sealed["state"], sealed["signature"]
        signature = None if signed is None else Signature(str(signed[0]), str(signed[1]))
        tree = {path: (digest, size) for path, (digest, size) in content["tree"].items()}
        state = State(tree, content["run_key"], content["base"])
        known = content["schema"] == _SCHEMA
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise StorageError(f"{what}, whose manifest {MANIFEST} is damaged: {error!r}.") from error
    require_vouched(keys, _KIND, canonical_json(content), signature, what)
    if not known:
        raise StorageError(f"{what}, whose manifest is of schema {content['schema']!r}, not 1.")
    return state
