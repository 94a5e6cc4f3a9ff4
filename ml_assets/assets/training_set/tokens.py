"""Tokenizes texts with a vocabulary that is learned from the training split.

Byte-pair encoding on bytes (Sennrich et al., 2016; Radford et al., 2019), by the library
``tokenizers``, which is loaded only when texts are cut.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ml_assets.assets.training_set.read_split import SplitRows
from ml_assets.errors import SpecError, counted, install, quoted
from ml_assets.spec.label import LabelSpec
from ml_assets.spec.texts import Tokens, TokensSpec

END = "<|end|>"
"""Token 0: it stands after each text, and before the first."""
_AT_ONCE = 256
"""Texts that are cut at once."""


def fit_tokens(train: SplitRows, spec: TokensSpec) -> Tokens:
    """The words of the training split's texts; the same texts give the same words.

    Raises:
        SpecError: ``tokenizers`` is not installed.
    """
    library = _library()
    made = library.Tokenizer(library.models.BPE())
    made.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = library.decoders.ByteLevel()
    trainer = library.trainers.BpeTrainer(
        vocab_size=spec.vocabulary,
        special_tokens=[END],
        initial_alphabet=sorted(library.pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    made.train_from_iterator(_texts(train, spec.column), trainer)
    return Tokens(
        column=spec.column,
        tokenizer=made.to_str(),
        size=made.get_vocab_size(),
        context=spec.context,
    )


def token_rates(train: SplitRows, tokens: Tokens) -> tuple[float, ...]:
    """[tokens] the share of each in the texts and their ends."""
    made = _opened(tokens)
    counts = np.zeros(tokens.size, np.int64)
    for texts in _batches(_texts(train, tokens.column)):
        for ids in _cut(made, texts):
            counts += np.bincount([*ids, 0], minlength=tokens.size)
    return tuple((counts / counts.sum()).tolist())


def token_arrays(
    frame: pl.DataFrame, tokens: Tokens, label: LabelSpec
) -> tuple[NDArray[np.uint16], NDArray[np.int64]]:
    """[n] the tokens of all texts, and [rows + 1] where each begins; see ``ShardFiles``.

    Raises:
        SpecError: a text is null, or the label is not the number of its bytes.
    """
    texts = frame[tokens.column]
    if texts.null_count():
        raise SpecError(
            f"The text {tokens.column!r} is null in {texts.null_count()} of"
            f" {counted(len(texts), 'row')}: leave these rows out in the feature function."
        )
    wrong = (frame[label.column].cast(pl.Float64) != texts.str.len_bytes()).fill_null(False)
    if wrong.any() and not label.column.startswith("__"):
        raise SpecError(
            f"The label {label.column!r} is {quoted(frame[label.column].filter(wrong)[0])} where"
            f" the text has {texts.filter(wrong).str.len_bytes()[0]:,} bytes: a language model is"
            f" judged by bits for each byte. Return pl.col({tokens.column!r}).str.len_bytes()."
        )
    made = _opened(tokens)
    parts, starts = [np.zeros(1, np.uint16)], [1]
    for batch in _batches(iter(texts)):
        for ids in _cut(made, batch):
            parts.append(np.array([*ids, 0], np.uint16))
            starts.append(starts[-1] + len(ids) + 1)
    return np.concatenate(parts), np.array(starts, np.int64)


def texts_of(ids: Sequence[Sequence[int]], tokens: Tokens) -> list[str]:
    """Return what a person reads of each row of tokens."""
    made = _opened(tokens)
    return [made.decode([one for one in row if one > 0]) for row in ids]


def _opened(tokens: Tokens) -> Any:
    made = _library().Tokenizer.from_str(tokens.tokenizer)
    made.encode_special_tokens = True  # a text that spells the end out does not end there
    return made


def _library() -> Any:
    try:
        import tokenizers
    except ImportError as error:
        raise SpecError(
            f"features.tokens needs tokenizers. Install it: {install('language')}"
        ) from error
    import tokenizers.decoders
    import tokenizers.models
    import tokenizers.pre_tokenizers
    import tokenizers.trainers

    return tokenizers


def _cut(made: Any, texts: list[str]) -> list[list[int]]:
    return [one.ids for one in made.encode_batch(texts, add_special_tokens=False)]


def _texts(rows: SplitRows, column: str) -> Iterator[str]:
    for frame in rows.each([column]):
        yield from frame[column].drop_nulls()


def _batches(texts: Iterator[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    for text in texts:
        batch.append(text)
        if len(batch) == _AT_ONCE:
            yield batch
            batch = []
    if batch:
        yield batch
