"""Reading a spec: every mistake at once, each with its line, its key and its remedy."""

from pathlib import Path

import pytest

from ml_assets.errors import SpecError
from ml_assets.spec.load import check_spec, load_spec
from ml_assets_tests.worlds import irises
from ml_assets_tests.worlds.world import edit


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    irises.plant(tmp_path, tmp_path / "sources")
    return tmp_path / "irises"


def test_a_right_spec_loads(folder: Path) -> None:
    spec = load_spec(folder)
    assert spec.name == "irises"
    assert spec.label.classes == ("setosa", "versicolor", "virginica")


def test_a_spec_that_is_named_unlike_its_folder_is_refused(folder: Path) -> None:
    moved = folder.rename(folder.parent / "flowers")
    with pytest.raises(SpecError, match=r"defs.yaml:\d+: name is 'irises'") as told:
        load_spec(moved)
    assert "rename the folder to irises, or write 'name: flowers'" in str(told.value)
    edit(moved / "defs.yaml", ("name: irises", "name: flowers"))
    assert load_spec(moved).name == "flowers"


def test_a_folder_whose_name_a_pipeline_cannot_have_is_to_be_renamed(folder: Path) -> None:
    moved = folder.rename(folder.parent / "Späti")
    with pytest.raises(SpecError, match=r"remedy: rename the folder to irises$"):
        load_spec(moved)


def test_three_mistakes_are_reported_at_once_each_with_its_line(folder: Path) -> None:
    edit(
        folder / "defs.yaml",
        ("epochs: 30", "epochs: many"),
        ("width: 32", "width: 32, colour: red"),
        ("validation: 0.2", "validation: 0.9"),
    )
    spec, mistakes = check_spec(folder)
    assert spec is None
    lines = (folder / "defs.yaml").read_text().splitlines()
    found = {mistake.key: mistake for mistake in mistakes}
    assert set(found) == {"training.epochs", "model.colour", "split.validation"}
    for key, mistake in found.items():
        assert key.split(".")[-1] in lines[mistake.line - 1]
    assert found["training.epochs"].value == "'many'"
    assert found["training.epochs"].rule == "it must be a whole number"
    assert "0.5" in found["split.validation"].rule


def test_an_unknown_field_suggests_the_nearest_one(folder: Path) -> None:
    edit(folder / "defs.yaml", ("batch_size: 24", "batch_sise: 24"))
    _, mistakes = check_spec(folder)
    assert [m.remedy for m in mistakes if m.key == "training.batch_sise"] == [
        "did you mean 'batch_size'?"
    ]


def test_a_key_is_named_as_it_stands_even_where_another_is_called_like_the_kind(
    folder: Path,
) -> None:
    model = "model: {family: module, module: n.py:build, confg: {a: 1}}\n"
    file = folder / "defs.yaml"
    text = file.read_text()
    line = next(line for line in text.splitlines(keepends=True) if line.startswith("  model:"))
    file.write_text(text.replace(line, f"  {model}"))
    _, mistakes = check_spec(folder)
    assert [m.key for m in mistakes if "confg" in m.key] == ["model.confg"]


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("partitioned: false", "partitoned: false", "did you mean 'partitioned'?"),
        ("bootstrap_samples:", "bootstrap_sampels:", "did you mean 'bootstrap_samples'?"),
        ("margin: 0.3", "margn: 0.3", "did you mean 'margin'?"),
        ("  label:", "  columns: [a]\n  label:", "remove it: no such field; there are "),
        ("  label:", "  serve: 1\n  label:", "remove it: no such field; there are "),
        ("width: 32", "width: 32, memory: 2", "remove it: no such field; there are depth, "),
    ],
)
def test_a_suggestion_is_of_the_place_that_it_is_made_for(
    folder: Path, right: str, wrong: str, said: str
) -> None:
    edit(folder / "defs.yaml", (right, wrong))
    _, mistakes = check_spec(folder)
    assert any(mistake.remedy.startswith(said) for mistake in mistakes), mistakes
    assert not any(mistake.key.split(".")[-1] in mistake.remedy for mistake in mistakes)


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("  label:", "  look_back: 2\n  label:", "write it under 'features'"),
        ("width: 32", "width: 32, gates: []", "write 'gates' at the top of the spec, not under"),
    ],
)
def test_a_key_of_another_place_is_led_there(
    folder: Path, right: str, wrong: str, said: str
) -> None:
    edit(folder / "defs.yaml", (right, wrong))
    _, mistakes = check_spec(folder)
    assert any(mistake.remedy.startswith(said) for mistake in mistakes), mistakes


def test_a_source_may_be_called_like_a_tag(folder: Path) -> None:
    edit(folder / "defs.yaml", ("    flowers:", "    kind:"), ("format: csv", "format: cvs"))
    _, mistakes = check_spec(folder)
    assert [one.key for one in mistakes] == ["sources.kind.format"]


def test_a_list_whose_items_are_all_wrong_is_not_told_to_be_empty(folder: Path) -> None:
    file = folder / "defs.yaml"
    head = file.read_text().partition("  gates:\n")[0]
    gate = "{kind: bound, name: floor, metric: accuracy, at_least: x}"
    file.write_text(f"{head}  gates: [{gate}]\n")
    _, mistakes = check_spec(folder)
    assert [one.key for one in mistakes] == ["gates[0].at_least"]


def test_a_missing_key_says_which(folder: Path) -> None:
    edit(folder / "defs.yaml", ("  owner: team:botany\n", ""))
    _, mistakes = check_spec(folder)
    assert mistakes[0].key == "owner"
    assert mistakes[0].remedy == "add the key 'owner'"


def test_parts_that_do_not_fit_together_are_named(folder: Path) -> None:
    edit(folder / "defs.yaml", ("baseline: constant,", "baseline: nothing,"))
    with pytest.raises(SpecError, match=r"'beats_constant' names baseline 'nothing'"):
        load_spec(folder)


def test_what_does_not_fit_together_has_its_own_line_and_not_the_whole_spec(folder: Path) -> None:
    edit(
        folder / "defs.yaml",
        ("{family: mlp, width: 32, depth: 2}", "{family: lightgbm}"),
        ("metric: accuracy,", "metric: rmse,"),
    )
    _, mistakes = check_spec(folder)
    lines = (folder / "defs.yaml").read_text().splitlines()
    found = {mistake.key: mistake for mistake in mistakes}
    assert found["training.batch_size"].value == "24"
    assert lines[found["training.batch_size"].line - 1].strip() == "batch_size: 24"
    assert "it has no meaning for model.family 'lightgbm'" in found["training.batch_size"].rule
    assert "accuracy_floor" in lines[found["gates[0].metric"].line - 1]
    assert "the spec" not in found
    assert "{'" not in "\n".join(str(mistake) for mistake in mistakes)


def test_two_fields_of_a_part_that_do_not_fit_name_the_part(folder: Path) -> None:
    edit(folder / "defs.yaml", ("microbatches: 12", "microbatches: 7"))
    _, (mistake,) = check_spec(folder)
    assert (mistake.key, mistake.value) == ("training", "")
    assert "must be a multiple of microbatches" in mistake.rule


def test_two_fields_of_a_source_that_do_not_fit_name_the_source_and_not_its_kind(
    folder: Path,
) -> None:
    edit(folder / "defs.yaml", ("partitioned: false", "partitioned: true"))
    _, mistakes = check_spec(folder)
    assert "sources.flowers" in {mistake.key for mistake in mistakes}
    assert not any(".files" in mistake.key for mistake in mistakes)


def test_a_file_that_is_not_yaml_gives_its_line(folder: Path) -> None:
    (folder / "defs.yaml").write_text("type: [\nattributes: }")
    _, mistakes = check_spec(folder)
    assert mistakes[0].line == 2
    assert "did not find expected node content" in mistakes[0].rule
    assert "look at this line" in mistakes[0].remedy


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("name: näme".encode("utf-16"), "text in UTF-8; byte 0 is not UTF-8"),
        (b"[" * 200_000, "nested more than 100 levels deep"),
        (b"a: " + b"{a: " * 120 + b"1" + b"}" * 120, "nested more than 100 levels deep"),
    ],
)
def test_what_is_no_text_or_too_deep_is_one_mistake(
    folder: Path, content: bytes, said: str
) -> None:
    (folder / "defs.yaml").write_bytes(content)
    spec, (mistake,) = check_spec(folder)
    assert spec is None
    assert said in mistake.rule


def test_a_missing_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"defs\.yaml"):
        load_spec(tmp_path)


def test_rules_are_plain_sentences_and_nothing_is_a_remedy_that_says_nothing(folder: Path) -> None:
    edit(
        folder / "defs.yaml",
        ("owner: team:botany", "owner: nobody here"),
        ("width: 32", "width: 32, colour: red"),
        ("microbatches: 12", "microbatches: 0"),
    )
    found = {one.key: one for one in check_spec(folder)[1]}
    assert found["model.colour"].rule == "there is no such key here"
    assert found["owner"].rule.startswith("it must be team:NAME, or an e-mail address")
    assert "remedy" not in str(found["owner"])
    assert found["training.microbatches"].remedy == "write 1 or more; without the key it is 24"
    edit(folder / "defs.yaml", ("family: mlp", "family: oak"), ("  owner: nobody here\n", ""))
    found = {one.key: one for one in check_spec(folder)[1]}
    assert found["owner"].rule == "the key is missing"
    assert found["model"].rule == "there is no family 'oak'"
    assert found["model"].remedy.startswith("use one of 'tabm', ")


@pytest.mark.parametrize(
    ("word", "near"),
    [
        ("acu", "did you mean 'auc' or 'accuracy'? a "),
        ("rsme", "a "),
        ("loss", "did you mean 'log_loss'? a "),
    ],
)
def test_a_metric_that_there_is_not_is_answered_with_those_of_the_task(
    folder: Path, word: str, near: str
) -> None:
    edit(folder / "defs.yaml", ("metric: accuracy", f"metric: {word}"))
    (found,) = check_spec(folder)[1]
    known = "'auc', 'log_loss', 'brier', 'accuracy', 'ece'"
    assert found.remedy == f"{near}multiclass task has {known}"


@pytest.mark.parametrize(
    ("old", "new", "key", "rule", "remedy"),
    [
        ("epochs: 30", "epochs: twenty", "training.epochs", "it must be a whole number", "digits"),
        ("epochs: 30", "epochs: 2.5", "training.epochs", "it must be a whole number", "digits"),
        ("epochs: 30", "epochs: 0", "training.epochs", "it must be greater than 0", ""),
        ("kind: random", "kind: randm", "split", "there is no kind 'randm'", "'time+group'"),
        ("kind: random, ", "", "split", "the key 'kind' is needed", "add the key 'kind'"),
        ("strategy: replicate", "strategy: both", "training.strategy", "no such choice", "'shard'"),
        ("numeric: [sepal_length", "numeric: sepal_length #", "features.numeric", "a list", "[one"),
        ("key: [flower]\n    d", "key: []\n    d", "features.key", "at least 1 item; it has 0", ""),
        ("owner: team:botany", "owner: 7", "owner", "it must be text", "quotes"),
        ("{family: mlp, width: 32, depth: 2}", "big", "model", "it must be keys", "{key"),
    ],
)  # fmt: skip
def test_no_rule_is_in_the_words_of_a_programmer(
    folder: Path, old: str, new: str, key: str, rule: str, remedy: str
) -> None:
    edit(folder / "defs.yaml", (old, new))
    found = {one.key: one for one in check_spec(folder)[1]}
    assert rule in found[key].rule
    assert remedy in found[key].remedy
    told = "\n".join(map(str, found.values()))
    assert not any(words in told for words in ("Input should", "valid", "Tuple", "time_shares"))


NO_KEY, NO_LIST, NO_KEYS = "there is no such key here", "a list", "keys with their values"


@pytest.mark.parametrize(
    ("numeric", "decode", "expected"),
    [
        ("temp", "{function: f.py:x, name: p, width: 2}", {"features.numeric": NO_LIST}),
        ("5", "{function: f.py:x, name: p, width: 2}", {"features.numeric": NO_LIST}),
        ("[a]", "{function: f.py:x, name: p}", {"features.decode.width": "the key is missing"}),
        ("[a]", "x", {"features.decode": NO_KEYS}),
        (
            "[a]",
            "{function: f.py:x, name: p, width: 2, of: 3}\n    look_back: -1",
            {"features.decode.of": NO_KEY, "features.look_back": "greater than or equal to 0"},
        ),
    ],
)
def test_a_wrong_decode_has_its_own_key_and_line_and_hides_no_other_mistake(
    folder: Path, numeric: str, decode: str, expected: dict[str, str]
) -> None:
    wrong = f"numeric: {numeric}\n    decode: {decode}"
    edit(
        folder / "defs.yaml",
        ("numeric: [sepal_length, sepal_width, petal_length, petal_width]", wrong),
    )
    found = {one.key: one for one in check_spec(folder)[1]}
    assert {*found} == {*expected}
    lines = (folder / "defs.yaml").read_text().splitlines()
    for key, rule in expected.items():
        assert rule in found[key].rule
        named = "decode" if "decode" in key else key.split(".")[1]
        assert lines[found[key].line - 1].strip().startswith(named)


@pytest.mark.parametrize(
    ("canary", "key", "rule", "remedy"),
    [
        ("yes", "release.canary", "it must be 'none', or keys with their values", ""),
        ("later", "release.canary", "it must be 'none', or keys with their values", ""),
        ("{period: 1}", "release.canary.period", NO_KEY, "did you mean 'periods'?"),
    ],
)
def test_a_wrong_canary_is_one_mistake(
    folder: Path, canary: str, key: str, rule: str, remedy: str
) -> None:
    edit(folder / "defs.yaml", ("  label:", f"  release: {{canary: {canary}}}\n  label:"))
    (mistake,) = check_spec(folder)[1]
    assert (mistake.key, mistake.remedy) == (key, remedy)
    assert rule in mistake.rule


def test_shares_are_a_split_by_shares_whatever_the_embargo_is(folder: Path) -> None:
    edit(folder / "defs.yaml", ("kind: random,", "kind: time, embargo: 0,"))
    (mistake,) = check_spec(folder)[1]
    assert (mistake.key, mistake.rule) == ("split.embargo", "it must be a duration")
    assert "'10 days'" in mistake.remedy
    edit(folder / "defs.yaml", ("embargo: 0", "embargo: 10 days"))
    assert check_spec(folder)[1] == ()


def test_an_embargo_without_shares_counts_partitions(folder: Path) -> None:
    edit(
        folder / "defs.yaml",
        ("{kind: random, validation: 0.2, holdout: 0.3}", "{kind: time, embargo: 1}"),
    )
    assert {one.key for one in check_spec(folder)[1]} == {
        "split.train",
        "split.validation",
        "split.holdout",
    }
