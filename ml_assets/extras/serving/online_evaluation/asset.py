"""online_evaluation: the served predictions of a period against the labels that have come since."""

import dagster as dg

from ml_assets.adapters.declare_asset import asset_key, feature_partitions, stage_asset
from ml_assets.adapters.metadata import record_metadata
from ml_assets.adapters.partitioned import Events, Made, make_partitions
from ml_assets.adapters.resources import StoresResource
from ml_assets.graph.code_version import code_version_of
from ml_assets.graph.inputs import require_record
from ml_assets.graph.publish import Draft, Work, input_version
from ml_assets.spec.base import canonical_json, digest_of
from ml_assets.spec.records import REPORT_FILE
from ml_assets.spec.stages import ONLINE_STAGE, PREDICTIONS_STAGE
from ml_assets.store.layout import Address
from ml_assets.store.pipeline_context import Pipeline


def online_evaluation(declared: Pipeline) -> dg.AssetsDefinition:
    """The online_evaluation asset of a pipeline that logs what it serves."""

    @stage_asset(
        declared,
        ONLINE_STAGE,
        description="The loss of champion and canary on the rows that each served, as far as labels"
        " have arrived, by slice.",
        kinds={"numpy"},
        deps=[
            asset_key(declared, "feature_set"),
            dg.AssetDep(
                asset_key(declared, PREDICTIONS_STAGE), partition_mapping=dg.AllPartitionMapping()
            ),
        ],
        partitions_def=feature_partitions(declared),
    )
    def materialize(context: dg.AssetExecutionContext, stores: StoresResource) -> Events:
        from ml_assets.extras.serving.online_evaluation.loss import served_loss

        pipeline = stores.open(declared)
        code_version = code_version_of(declared, ONLINE_STAGE)

        def make(address: Address) -> Made:
            base = pipeline.store.resolve("main")
            state = pipeline.at(base)
            features = pipeline.address("feature_set", partition=address.partition)
            hours = state.partitions(pipeline.address(PREDICTIONS_STAGE))
            read = (require_record(state, features), *hours.values())
            inputs = tuple(input_version(record, base) for record in read)
            work = Work(address, code_version, inputs, context.run.run_id)
            report = served_loss(state, address.partition, hours)
            units = sum(one.units for one in report.models)
            with Draft(pipeline, work, base, rows=units) as draft:
                draft.text(REPORT_FILE, canonical_json(report))
                published = draft.publish(attributes={}, data_version=digest_of(report))
            shown: dict[str, float | str] = {
                f"loss in {one.stage} ({one.model[:12]})": one.loss.value for one in report.models
            }
            if report.difference is not None:
                shown["canary minus champion"] = report.difference.value
                shown["95 % interval"] = (
                    f"{report.difference.low:.4f} to {report.difference.high:.4f}"
                )
            return Made(published, {**shown, **record_metadata(published)})

        yield from make_partitions(
            context, pipeline, Address(pipeline.name, ONLINE_STAGE), make, dict
        )

    return materialize
