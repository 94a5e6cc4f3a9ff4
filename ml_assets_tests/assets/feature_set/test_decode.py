"""Numbers of the files to which feature rows refer: the team's function, held to what it says."""

import io
import wave
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from ml_assets.assets.feature_set.decode import WithDecoded
from ml_assets.assets.feature_set.feature_function import load_function
from ml_assets.assets.raw_snapshot.readers.listing import find_local
from ml_assets.errors import SourceError, SpecError
from ml_assets.spec.features import DecodeSpec, FeaturesSpec
from ml_assets.spec.window import Window
from ml_assets_tests.servers.s3 import BUCKET, S3Server

SPEC = DecodeSpec(function="f.py:sizes", name="n", width=2)
WINDOW = Window(None, None, None)


def sizes(files: list[bytes]) -> list[list[int]]:
    return [[len(one), one[0]] for one in files]


def rows(root: Path, names: list[str]) -> pl.LazyFrame:
    etags = [found.etag if (found := find_local(root, name)) else None for name in names]
    return pl.LazyFrame({"path": names, "etag": etags})


def decoded(root: Path, table: pl.LazyFrame, decode=sizes) -> pl.DataFrame:
    return WithDecoded(lambda tables, _: tables["t"], SPEC, decode, "images", root)(
        {"t": table}, WINDOW
    ).collect()


@pytest.fixture
def table(tmp_path: Path) -> pl.LazyFrame:
    """More files than are read at once."""
    for number in range(300):
        (tmp_path / f"{number:03}").write_bytes(bytes([number % 256]) * (number + 1))
    return rows(tmp_path, [f"{number:03}" for number in reversed(range(300))])


def test_each_row_gets_the_numbers_of_its_own_file(table: pl.LazyFrame, tmp_path: Path) -> None:
    found = decoded(tmp_path, table)
    assert found["n_0"].to_list() == list(reversed(range(1, 301)))
    assert found["n_1"].to_list() == [number % 256 for number in reversed(range(300))]
    assert found.schema["n_0"] == pl.Float64


def test_a_file_that_is_another_one_now_is_refused_by_name(
    table: pl.LazyFrame, tmp_path: Path
) -> None:
    (tmp_path / "007").write_bytes(b"another")
    with pytest.raises(SourceError, match=r"images: .*/007 has other content now: its etag was"):
        decoded(tmp_path, table)
    (tmp_path / "007").unlink()
    with pytest.raises(SourceError, match=r"/007 is no longer there"):
        decoded(tmp_path, table)


@pytest.mark.parametrize(
    ("decode", "said"),
    [
        (
            lambda files: np.zeros((len(files), 3)),
            r"of the shape \(256, 3\); expected\n? ?\(256, 2\)",
        ),
        (lambda files: [][1], r"f\.py:sizes of 299 to 044 raised IndexError"),
    ],
    ids=["too many numbers", "an error"],
)
def test_what_a_function_returns_is_held_to_the_spec(
    table: pl.LazyFrame, tmp_path: Path, decode, said: str
) -> None:
    with pytest.raises(SpecError, match=said):
        decoded(tmp_path, table, decode)


def test_a_column_of_the_function_does_not_take_a_decoded_ones_name(
    table: pl.LazyFrame, tmp_path: Path
) -> None:
    with pytest.raises(SpecError, match=r"returns 'n_1', a name that features\.decode gives"):
        decoded(tmp_path, table.with_columns(n_1=0.5))


def test_rows_that_refer_to_nothing_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"reads the columns \['etag'\], which the feature"):
        decoded(tmp_path, pl.LazyFrame({"path": ["a"]}))
    with pytest.raises(SpecError, match="which file to decode"):
        decoded(tmp_path, rows(tmp_path, ["gone"]))


def test_files_in_a_bucket_are_read_as_they_were_listed(bucket: S3Server, tmp_path: Path) -> None:
    tag = bucket.client.put_object(Bucket=BUCKET, Key="a/b", Body=b"abc")["ETag"].strip('"')
    table = pl.LazyFrame({"path": [f"s3://{BUCKET}/a/b"], "etag": [tag]})
    assert decoded(tmp_path, table).row(0)[2:] == (3.0, 97.0)
    bucket.client.put_object(Bucket=BUCKET, Key="a/b", Body=b"xyz")
    with pytest.raises(SourceError, match="it was replaced meanwhile"):
        decoded(tmp_path, table)


SOUNDS = """
import io
import wave

import numpy as np


def heard(files: list[bytes]) -> np.ndarray:
    \"\"\"[n, 2] how loud a sound is, and how often a second it goes through zero.\"\"\"
    return np.array([_heard(file) for file in files])


def _heard(file: bytes) -> tuple[float, float]:
    with wave.open(io.BytesIO(file)) as sound:
        samples = np.frombuffer(sound.readframes(sound.getnframes()), "<i2") / 32768
        seconds = sound.getnframes() / sound.getframerate()
    return float(np.sqrt((samples**2).mean())), (np.diff(np.sign(samples)) != 0).sum() / seconds
"""
LETTERS = """
def read(files):
    return [[len(text.split()), text.count("!")] for text in (one.decode() for one in files)]
"""


def tone(hertz: float, loud: float) -> bytes:
    """A second of it, as a WAV file."""
    at = np.arange(8000) / 8000
    samples = (32767 * loud * np.sin(2 * np.pi * hertz * at + 0.1)).astype("<i2")
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(8000)
        sound.writeframes(samples.tobytes())
    return file.getvalue()


@pytest.mark.parametrize(
    ("code", "function", "files", "numbers"),
    [
        (SOUNDS, "heard", [tone(440, 0.5), tone(50, 0.1)], [(0.354, 880), (0.0707, 100)]),
        (LETTERS, "read", ["Grüße an alle!".encode(), b"no!!"], [(3, 1), (1, 2)]),
    ],
    ids=["sounds", "texts"],
)
def test_sounds_and_texts_are_decoded_by_a_function_of_the_teams_folder(
    tmp_path: Path, code: str, function: str, files: list[bytes], numbers: list[tuple[float, float]]
) -> None:
    folder, root = tmp_path / "p", tmp_path / "files"
    folder.mkdir()
    root.mkdir()
    (folder / "f.py").write_text(code)
    for number, file in enumerate(files):
        (root / str(number)).write_bytes(file)
    decode = load_function(folder, f"f.py:{function}", "p")
    found = decoded(root, rows(root, [str(number) for number in range(len(files))]), decode)
    assert found.select("n_0", "n_1").to_numpy() == pytest.approx(np.array(numbers), rel=0.01)


def test_its_features_are_numeric_ones_also_of_a_spec_that_was_written_down() -> None:
    spec = FeaturesSpec.model_validate(
        {"function": "f.py:b", "key": ["k"], "decision_at": "t", "decode": SPEC.model_dump()}
    )
    assert spec.numeric == ("n_0", "n_1")
    assert FeaturesSpec.model_validate(spec.model_dump()) == spec


def test_a_decoder_that_finds_no_number_at_all_is_refused(
    table: pl.LazyFrame, tmp_path: Path
) -> None:
    def nothing(files: list[bytes]) -> list[list[float]]:
        return [[np.nan, np.inf]] * len(files)

    with pytest.raises(SpecError, match="returned no number for any of 300 files"):
        decoded(tmp_path, table, nothing)
    some = decoded(tmp_path, table, lambda files: [[np.nan, 1.0]] * len(files))
    assert some["n_0"].is_nan().all(), "one that it cannot read is a missing value"
