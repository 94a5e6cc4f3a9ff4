"""training_set: one window of feature rows, split, leak-checked and laid out for the program."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from ml_assets.adapters.check_outcome import whole_check
from ml_assets.adapters.declare_asset import asset_key, journaled, stage_asset
from ml_assets.adapters.metadata import card_link, data_card, glance, numbers, record_metadata
from ml_assets.adapters.resources import StoresResource
from ml_assets.adapters.run_config import RunConfig
from ml_assets.assets.feature_set.leak_checks import leak_specs, outcome, refusal, set_checks
from ml_assets.errors import LeakError
from ml_assets.graph.code_version import code_version_of
from ml_assets.graph.publish import Draft, Work
from ml_assets.store.layout import Address
from ml_assets.store.pipeline_context import Pipeline

if TYPE_CHECKING:
    from ml_assets.adapters.step import RunLog
    from ml_assets.assets.training_set.encoded_set import EncodedSet

STAGE = "training_set"


class TrainingSetConfig(RunConfig):
    """The window to train on."""

    as_of: str | None = Field(
        default=None,
        description="Last partition of the holdout; default: the latest one of feature_set.",
    )


def training_set(declared: Pipeline) -> dg.AssetsDefinition:
    """The training_set asset of a pipeline."""
    code_version = code_version_of(declared, STAGE)

    @stage_asset(
        declared,
        STAGE,
        code_version=code_version,
        description="Train, validation and holdout rows, encoded: the preprocessing is fitted on"
        " the training split only, and the split is checked for leaks.",
        kinds={"polars", "numpy"},
        deps=[asset_key(declared, "feature_set")],
        config_schema=TrainingSetConfig.form(),
        check_specs=leak_specs(declared, STAGE, set_checks(declared)),
    )
    @journaled(declared, STAGE)
    def materialize(
        context: dg.AssetExecutionContext,
        stores: StoresResource,
    ) -> Iterator[dg.MaterializeResult | dg.AssetCheckResult]:
        from ml_assets.assets.training_set.encoded_set import encode_window, publish_set

        begun = datetime.now(UTC)
        pipeline = stores.open(declared, keeps_objects=True)
        base = pipeline.store.resolve("main")
        made = encode_window(context.log, pipeline.at(base), TrainingSetConfig.of(context).as_of)
        key = asset_key(pipeline, STAGE)
        yield from (whole_check(key, outcome(pipeline, one)) for one in made.findings)
        refused = refusal(made.findings, pipeline.spec, f"{pipeline.name}/{STAGE}")
        if refused:
            raise LeakError(refused)
        address = Address(pipeline.name, STAGE)
        work = Work(address, code_version, made.inputs, context.run.run_id, begun=begun)
        published, card = publish_set(pipeline.at(base), work, made)
        yield dg.MaterializeResult(
            metadata={
                **_shown(made),
                **card_link(pipeline, address),
                **data_card(card),
                **record_metadata(published),
            },
            data_version=dg.DataVersion(made.ref.digest),
        )

    return materialize


def encode_ahead(log: "RunLog", draft: Draft) -> Mapping[str, Any]:
    """See ``encoded_set.encode_ahead``, which is loaded where a partition is encoded."""
    from ml_assets.assets.training_set import encoded_set

    return encoded_set.encode_ahead(log, draft)


def _shown(made: "EncodedSet") -> dict[str, Any]:
    """What the page says of a set: its window, where it lies, and numbers to plot over time."""
    from ml_assets.assets.training_set.encoded_set import shards_in_words
    from ml_assets.assets.training_set.window import window_markdown
    from ml_assets.reports.drawing import Bar
    from ml_assets.reports.inline_pictures import glance_at_bars
    from ml_assets.spec.training_program import SPLITS

    rates = made.attributes["label_rate"]
    sizes = {f"rows_{name}": count for name, count in made.rows.items()}
    splits = [Bar(name, float(made.rows[name])) for name in SPLITS if name in made.rows]
    return {
        **glance(glance_at_bars("Rows by split", splits)),
        "window": dg.MetadataValue.md(window_markdown(made.window, made.rows)),
        "dagster/uri": made.ref.uri,
        **numbers({**sizes, "label_rate": rates[0] if rates else None}),
        "shards": shards_in_words(made.written),
        **numbers({"shards_encoded": made.written.encoded}),
    }
