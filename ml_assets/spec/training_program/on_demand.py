"""The message of a pod to its processes if the rows of the training split stay in the store."""

from ml_assets.spec.base import Frozen, Positive


class RowsOnDemand(Frozen):
    """The rows of the training split are fetched as training comes to them."""

    uri: str
    """``s3://``: the folder of the shards."""
    scratch: str
    """A folder of this machine."""
    bytes: Positive
    """Bytes of the disk that each process may take for them."""
