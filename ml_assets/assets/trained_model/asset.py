"""checkpoints and trained_model: one training session, followed while it runs."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from ml_assets.adapters.declare_asset import asset_key, attributes, journaled, pool
from ml_assets.adapters.metadata import SHOWN, numbers, record_metadata, tracking_link
from ml_assets.adapters.resources import LauncherResource, StoresResource
from ml_assets.adapters.run_config import RunConfig
from ml_assets.adapters.step import reported
from ml_assets.assets.trained_model.checks import require_sane
from ml_assets.graph.publish import Published
from ml_assets.reports.wording import plain_markdown
from ml_assets.spec.sanity import Alone
from ml_assets.spec.stages import SEARCH_STAGE
from ml_assets.spec.training import Boosted, ModelSpec
from ml_assets.store.pipeline_context import Pipeline

if TYPE_CHECKING:
    from ml_assets.assets.trained_model.train_and_publish import Trained, Training

STAGE = "trained_model"


class TrainingConfig(RunConfig):
    """Holds what this run trains other than the spec says."""

    fresh: str | None = Field(
        default=None,
        description="Any text: each new one trains again from scratch, in a new session.",
    )
    epochs: int | None = Field(
        default=None,
        description="Epochs instead of the spec's, for this run only: the next trains by the spec"
        " again.",
    )
    experiment: str | None = Field(
        default=None,
        description="The experiment that the run belongs to, for people who compare runs; it "
        "changes no result.",
    )
    hypothesis: str | None = None
    goal: str | None = None
    registered: str | None = Field(
        default=None,
        description="The digest of a registered model: it becomes the candidate, and none is "
        "trained.",
    )


def trained_model(declared: Pipeline) -> dg.AssetsDefinition:
    """The checkpoints and trained_model assets of a pipeline: one step, never half of it."""

    @dg.multi_asset(
        name=f"{declared.name}__train",
        specs=_specs(declared),
        can_subset=False,
        pool=pool(declared, STAGE),
        config_schema=TrainingConfig.form(),
    )
    @reported
    @journaled(declared, STAGE)
    def materialize(
        context: dg.AssetExecutionContext,
        stores: StoresResource,
        launcher: LauncherResource,
    ) -> Iterator[dg.MaterializeResult]:
        from ml_assets.assets.trained_model.train_and_publish import Training, publish_model
        from ml_assets.records.ledger.chain import register

        config = TrainingConfig.of(context)
        pipeline = stores.open(declared, keeps_objects=True)
        if config.registered is not None:
            from ml_assets.assets.trained_model.registered import publish_registered

            yield _registered(pipeline, publish_registered(context, pipeline, config.registered))
            return
        training = Training.of(
            context, pipeline, config.epochs, config.fresh, launcher.launcher(pipeline)
        )
        alone = require_sane(context, training.asked, training.runner, training.job.data)
        trained = training.run()
        shown = _shown(training, trained, alone)
        for stage, published in publish_model(training, trained):
            yield _result(pipeline, stage, published, trained, shown)
        model = trained.model.digest
        register(pipeline.store, pipeline.name, model, pipeline.spec.owner, context.run.run_id)
        trained.sinks.attach(trained.record)

    return materialize


def _registered(pipeline: Pipeline, published: Published) -> dg.MaterializeResult:
    record = published.record
    said = record.attributes["registered"]
    return dg.MaterializeResult(
        asset_key=asset_key(pipeline, STAGE),
        metadata={
            "made elsewhere": f"version {said['version']} from {said['uri']}",
            **{f"claimed {name}": value for name, value in said["claims"].items()},
            "dagster/uri": record.attributes["model"]["uri"],
            **record_metadata(published),
        },
        data_version=dg.DataVersion(record.data_version),
    )


def _specs(pipeline: Pipeline) -> list[dg.AssetSpec]:
    return [
        dg.AssetSpec(
            **attributes(pipeline, "checkpoints"),
            description="Whole training states, reported while training runs; they survive a"
            " failed run and the next one resumes from them.",
            kinds={_engine(pipeline.spec.model)},
            deps=[asset_key(pipeline, "training_set")],
            skippable=True,  # a model that was made elsewhere has none
        ),
        dg.AssetSpec(
            **attributes(pipeline, STAGE),
            description=f"{_weights(pipeline.spec.model)}, its configuration and its preprocessing"
            " as data. Nothing is pickled.",
            kinds={_engine(pipeline.spec.model), "mlflow"},
            deps=[
                asset_key(pipeline, "training_set"),
                *_study(pipeline),
                asset_key(pipeline, "checkpoints"),
            ],
        ),
    ]


def _study(pipeline: Pipeline) -> list[dg.AssetKey]:
    """The study whose winner it is trained by, where the search says so."""
    adopts = pipeline.search is not None and pipeline.search.adopt
    return [asset_key(pipeline, SEARCH_STAGE)] if adopts else []


def _engine(model: ModelSpec) -> str:
    return model.family if isinstance(model, Boosted) else "torch"


def _weights(model: ModelSpec) -> str:
    if isinstance(model, Boosted):
        return f"Boosted trees by {model.family}"
    return f"The weights of a network ({model.family}) as safetensors"


def _listed(advice: Sequence[str]) -> str:
    return "\n".join(f"- {plain_markdown(one)}" for one in advice)


def _shown(training: "Training", trained: "Trained", alone: Alone | None) -> dict[str, Any]:
    """What both pages show: pictures, measurements, costs, where weights and values come from."""
    from ml_assets.assets.trained_model.cost.page import costs

    pipeline, sinks = training.pipeline, trained.sinks
    won, order = training.asked.winner, training.row_order
    return {
        **sinks.pictures(),
        **sinks.measurements(trained.result, training.world, alone),
        **costs(pipeline, trained.result.session),
        **tracking_link(pipeline, sinks.mlflow_run),
        **{key: f"{one.said} {one.ref.digest[:SHOWN]}" for key, one in training.given.items()},
        **({"search": f"trial {won.trial} of {won.study}"} if won else {}),
        **({"row_order": order} if order else {}),
    }


def _result(
    pipeline: Pipeline, stage: str, published: Published, trained: "Trained", shown: dict[str, Any]
) -> dg.MaterializeResult:
    result = trained.result
    return dg.MaterializeResult(
        asset_key=asset_key(pipeline, stage),
        metadata={
            **shown,
            "stopped": f"{result.stopped} at step {result.step}",
            **({"advice": dg.MetadataValue.md(_listed(result.advice))} if result.advice else {}),
            **numbers({"best_step": result.best_step, "step": result.step, **result.metrics}),
            "session": result.session,
            "dagster/uri": trained.model.uri,
            **record_metadata(published),
        },
        data_version=dg.DataVersion(published.record.data_version),
    )
