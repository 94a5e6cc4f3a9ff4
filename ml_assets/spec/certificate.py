"""The certificate of a decision: what was decided about which model, from what, and by whom.

In the spirit of an in-toto statement, in a DSSE envelope (github.com/secure-systems-lab/dsse).
"""

from typing import Annotated, Literal

from pydantic import Field

from ml_assets.spec.base import Digest, Frozen, unset
from ml_assets.spec.records import GateResult, InputVersion, Time
from ml_assets.spec.registered import Registered
from ml_assets.spec.training_program.identity import Node, Program

PAYLOAD_TYPE = "application/vnd.ml_assets.certificate+json"


class EnvelopeSignature(Frozen):
    keyid: str
    """The public key, base64."""
    sig: str
    """ed25519 over DSSE's pre-authentication encoding of type and payload, base64."""


class Envelope(Frozen):
    """Names are those of the DSSE protocol."""

    payload: str
    """Base64 of the certificate's JSON."""
    payloadType: str
    signatures: Annotated[tuple[EnvelopeSignature, ...], Field(strict=False, max_length=16)]


class Provenance(Frozen):
    """Holds what a model was made from, as its signed run record has it."""

    training_set: Digest
    inputs: tuple[InputVersion, ...] = Field(strict=False)
    """The exact snapshot versions that the training set is made of, each with its commit."""
    init: Digest | None
    """The weights that training began with; None: fresh ones."""
    teacher: Digest | None = Field(default=None, exclude_if=unset)
    """The model that it learned from beside the labels; None: it had none."""
    sources: Digest
    """The digest of every source file of the package that made its data ready and judged it."""
    git_sha: str | None
    lock: Digest | None
    """The digest of requirements.lock."""
    settings: Digest
    """The digest of all places that its training read and wrote, without secrets."""
    spec: Digest
    """The digest of the resolved spec."""
    reproduces: Digest
    """The digest of code, lock, spec, inputs and seed: what `prove` repeats."""
    program: Program
    """That trained it, or judged what was made elsewhere."""
    registered: Registered | None = Field(default=None, exclude_if=unset)
    """What is said of a model that was made elsewhere: the rest is then what it was judged with."""
    nodes: tuple[Node, ...] = Field(strict=False)
    """What each node of the training said that it runs, and on what."""
    baseline: Digest | None = Field(default=None, exclude_if=unset)
    """The digest of what later rows are compared with; None: data without periods."""


class LedgerLine(Frozen):
    """Says which line of the ledger it is about: an old certificate is about another one."""

    seq: Annotated[int, Field(ge=1)]
    previous: Digest | None
    sha256: Digest
    """The digest of the line's bytes."""


class Overridden(Frozen):
    """A person's word against a refusal."""

    decision: Annotated[int, Field(ge=1)]
    """The line of the decision that refused."""
    author: str
    reason: str
    time: Time


class Certificate(Frozen):
    """Holds what is signed about a decision, pass or refusal, or about a word against one."""

    schema_version: Literal[1] = 1
    pipeline: str
    model: Digest
    """The digest of ``model.json``, which names the weights by their digest."""
    report: Digest
    code: str
    """Code version of the training."""
    policy: Digest
    champion: Digest | None
    gates: tuple[GateResult, ...] = Field(strict=False)
    passed: bool
    reason: str
    run: str
    """Dagster run that decided."""
    author: str
    time: Time
    line: LedgerLine
    override: Overridden | None = Field(default=None, exclude_if=unset)
    provenance: Provenance | None
    """None: nobody said what the model was made from; it is not released."""
