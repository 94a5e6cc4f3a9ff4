"""YAML and JSON that people write: a key that is there twice, and documents made to hurt."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ml_assets.assets.validated_table.contract.suite import load_contract
from ml_assets.errors import ContractError
from ml_assets.spec.documents import DocumentError, RepeatedKey, read_json, read_yaml
from ml_assets.spec.load import check_spec
from ml_assets_tests.worlds import irises

BOMB = "\n".join(
    ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    irises.plant(tmp_path, tmp_path / "sources")
    return tmp_path / "irises"


@pytest.mark.parametrize(
    ("text", "first", "second"),
    [
        ("a: 1\nb: 2\na: 3", 1, 3),
        ("x:\n  y:\n    - a: 1\n      'a': 2", 3, 4),
        ("{a: 1,\n a: [1, 2]}", 1, 2),
        ("? a\n: {b: 1}\na: 2", 1, 3),
        ("x: {a: 1}\ny: {a: 1}\nx:\n - 1", 1, 3),
    ],
)
def test_a_key_of_yaml_that_stands_twice_is_an_error_with_both_lines(
    text: str, first: int, second: int
) -> None:
    with pytest.raises(RepeatedKey, match=f"on line {first} and on line {second}"):
        read_yaml(text)


@pytest.mark.parametrize(
    ("text", "first", "second"),
    [
        ('{"a": 1,\n "b": 2,\n "a": 3}', 1, 3),
        ('[{"a": {"x": 1}}, {"a": {\n"\\u0078": ":{",\n"x": 2}}]', 2, 3),
        ('{"x": [1, {"b": 1}],\n"y": {"b": {}, "c": "b",\n "b": 1}}', 2, 3),
    ],
)
def test_a_key_of_json_that_stands_twice_is_an_error_with_both_lines(
    text: str, first: int, second: int
) -> None:
    with pytest.raises(RepeatedKey, match=f"on line {first} and on line {second}"):
        read_json(text)
    with pytest.raises(RepeatedKey):
        read_json(text.encode())


def test_equal_keys_of_different_mappings_and_merged_ones_are_none_twice() -> None:
    text = "base: &base {a: 1, b: 2}\none: {<<: *base, a: 3}\ntwo: {a: 1, k: a}\nlist: [a, a]"
    assert read_yaml(text)["one"] == {"a": 3, "b": 2}
    assert read_json('[{"a": "a"}, {"a": {"a": ["a", "a"]}}]')[1] == {"a": {"a": ["a", "a"]}}


MADE_TO_HURT = (
    BOMB,
    f"{BOMB}\ntype: x\nattributes: *a9",
    f"{BOMB}\nattributes: {{name: *a9}}",
    f"attributes:\n  {BOMB.replace(chr(10), chr(10) + '  ')}",
    BOMB.replace("[", "{k: [").replace("]", "]}"),
    "a: &a {x: 1}\n"
    + "\n".join(
        f"b{n}: &b{n} {{<<: [{', '.join(['*a' if n == 0 else f'*b{n - 1}'] * 9)}]}}"
        for n in range(10)
    ),
    "a: &a [1, *a]",
    "[" * 5_000,
    "- " * 5_000,
    "{a: " * 5_000,
)
CHECKED = """
import json, pathlib, sys, time
from ml_assets.spec.load import check_spec
folder = pathlib.Path(sys.argv[1])
for text in json.load(sys.stdin):
    (folder / "defs.yaml").write_text(text)
    began = time.process_time()
    spec, found = check_spec(folder)
    print(json.dumps([time.process_time() - began, [str(one) for one in found]]), flush=True)
"""


def test_a_document_made_to_hurt_ends_in_a_sentence_at_once(folder: Path) -> None:
    """In a process of its own: of some the parser in C would end it, after the last line told."""
    done = subprocess.run(
        [sys.executable, "-c", CHECKED, str(folder)],
        input=json.dumps(MADE_TO_HURT),
        capture_output=True,
        text=True,
        check=False,
    )
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert (len(told), done.returncode) == (len(MADE_TO_HURT), 0), done.stderr
    for text, (seconds, mistakes) in zip(MADE_TO_HURT, told, strict=True):
        assert seconds < 1, text
        [said] = mistakes
        assert "rule:" in said
        assert "more than" in said or "contains itself" in said


@pytest.mark.parametrize(
    "value",
    [
        "2023-02-29",
        "2023-13-01",
        "0x_",
        "!!timestamp abc",
        "!!bool perhaps",
        "!!int ''",
        "9" * 5000,
        "0x" + "f" * 5000,
    ],
    ids=lambda value: value[:20],
)
def test_a_date_or_a_number_that_there_is_not_is_an_error_with_its_line(value: str) -> None:
    with pytest.raises(DocumentError, match=r"^line 3: .* is read as a date or a number") as told:
        read_yaml(f"a:\n  - b: 2024-02-29\n    c: {value}\n")
    assert "put it in quotes" in str(told.value)
    assert len(str(told.value)) < 200


def test_a_spec_with_such_a_date_has_one_mistake_with_its_line(folder: Path) -> None:
    file = folder / "defs.yaml"
    text = file.read_text()
    file.write_text(text.replace("  sources:\n", "  partitions: {start: 2023-02-29}\n  sources:\n"))
    spec, (mistake,) = check_spec(folder)
    assert spec is None
    assert "2023-02-29" in file.read_text().splitlines()[mistake.line - 1]
    assert "'2023-02-29' is read as a date or a number" in mistake.rule


def test_a_second_block_of_gates_is_refused_with_both_lines(folder: Path) -> None:
    file = folder / "defs.yaml"
    text = file.read_text()
    first = next(n for n, line in enumerate(text.splitlines(), 1) if line.strip() == "gates:")
    file.write_text(f"{text.rstrip()}\n  gates: []\n")
    last = len(file.read_text().splitlines())
    spec, (mistake,) = check_spec(folder)
    assert spec is None
    assert mistake.line == last
    assert f"'gates' is there twice: on line {first} and on line {last}" in mistake.rule


def test_dagsters_own_command_refuses_it_too(folder: Path) -> None:
    """Dagster's own loader would take the last of two blocks, from whatever command."""
    twins = folder.with_name("twins")
    shutil.copytree(folder, twins)
    text = (twins / "defs.yaml").read_text().replace("name: irises", "name: twins").rstrip()
    (twins / "defs.yaml").write_text(f"{text}\n  gates: []\n")
    home = folder.parent / "home"
    (home / "dagster").mkdir(parents=True)
    own = {"ML_ASSETS_HOME": str(home), "ML_ASSETS_PIPELINES": str(folder.parent)}
    done = subprocess.run(
        [sys.executable, "-m", "dagster", "asset", "list", "-m", "ml_assets.definitions"],
        env={**os.environ, **own, "DAGSTER_HOME": str(home / "dagster")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "twins/evaluation_report" not in done.stdout
    if "irises/evaluation_report" not in done.stdout:
        assert "'gates' is there twice" in done.stderr


def test_a_contract_with_a_key_twice_is_refused(folder: Path) -> None:
    (contract,) = folder.glob("**/*.json")
    text = contract.read_text()
    contract.write_text(text.rstrip()[:-1].rstrip() + ',\n "expectations": []}')
    with pytest.raises(ContractError, match="'expectations' is there twice: on line"):
        load_contract(contract)


def test_a_deep_document_of_json_is_a_sentence() -> None:
    with pytest.raises(DocumentError, match="nested"):
        read_json("[" * 100_000)


def test_a_large_spec_is_read() -> None:
    text = "columns:\n" + "".join(
        f"  c{n}: {{type: float64, required: true}}\n" for n in range(2000)
    )
    assert len(read_yaml(text)["columns"]) == 2000
