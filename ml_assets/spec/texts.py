"""Texts for a language model: their spec, their tokenization, and their checks."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from ml_assets.spec.base import Frozen, Name


class TokensSpec(Frozen):
    """The rows are texts: the training set is their tokens, one after the other.

    The words are learned from the training split alone, by byte-pair encoding.
    """

    column: str
    """The text, a string column that the feature function returns."""
    vocabulary: Annotated[int, Field(ge=257, le=65_535)] = 4096
    """The largest number of words, including the bytes and the end of a text."""
    context: Annotated[int, Field(ge=2)] = 256
    """The number of tokens that the network sees at once."""


class Tokens(Frozen):
    """Describes how texts become tokens: byte-pair encoding, as the library ``tokenizers`` writes
    it down.

    Token 0 is the end of a text, and stands before the first one.
    """

    column: str
    tokenizer: str
    """JSON."""
    size: Annotated[int, Field(ge=2, le=65_535)]
    """Different tokens."""
    context: Annotated[int, Field(ge=2)]
    """The number of tokens that the network sees at once."""

    @property
    def asked(self) -> TokensSpec:
        """Return what gives these words again, from the same texts."""
        return TokensSpec(column=self.column, vocabulary=self.size, context=self.context)


class TextBaseline(Frozen):
    """A code for texts: tokens all alike; by how often each comes, or comes after the one before
    it; or what gzip makes of each text."""

    kind: Literal["uniform", "unigram", "bigram", "gzip"]
    name: Name = ""

    @model_validator(mode="before")
    @classmethod
    def _named_for_its_kind(cls, raw: Any) -> Any:
        return {"name": raw.get("kind"), **raw} if isinstance(raw, dict) else raw


class TextSample(Frozen):
    """The first tokens of a text that the model never saw, and how it goes on with them."""

    given: str
    drawn: str
