"""Builds the planner's nodes from a pipeline's graph and the store: the inputs of each asset."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ml_assets.assets.feature_set.function_inputs import Reads, feature_reads, table_reads
from ml_assets.assets.raw_snapshot.asset import STAGE as RAW
from ml_assets.assets.raw_snapshot.receipt import receipt_version
from ml_assets.assets.raw_snapshot.sources import Sources
from ml_assets.automation.planner.landed import Landed, raw_address
from ml_assets.automation.planner.plan import RECALLED, Node, Plan, column_changes, plan
from ml_assets.errors import SourceError, StoreAway
from ml_assets.graph.code_version import code_version_of
from ml_assets.load_extras import load_extra
from ml_assets.records.recalls import Quarantine, quarantine
from ml_assets.spec.partitions import PartitionWindow, windows
from ml_assets.spec.records import InputVersion, StageRecord
from ml_assets.spec.stages import SEARCH_STAGE, SOURCE_STAGES
from ml_assets.store.layout import Address, read_records
from ml_assets.store.pipeline_context import Pipeline
from ml_assets.store.snapshots import SnapshotStore


def plan_data(
    pipeline: Pipeline,
    arrived: Landed,
    records: Mapping[Address, StageRecord],
    *,
    data_only: bool = False,
) -> tuple[Plan, StoreAway | None]:
    """The plan of the data stages, from the sources to what is served online.

    Args:
        data_only: due because data changed: code that changed is not looked at, and a table that is
            still being written is not waited for.

    Returns:
        The plan, and why nobody can tell what is served, where the online store is away: what was
        served then counts as served.
    """
    if data_only:
        nodes = under_published_code(_landed_nodes(pipeline, arrived, records), records)
    else:
        nodes = _nodes(pipeline, arrived, records)
    found = plan(nodes, records)
    if pipeline.spec.online is None:
        return found, None
    try:
        return load_extra("online").with_lost_service(pipeline, found, records), None
    except StoreAway as away:
        return found, away


Receipt = Callable[[str, PartitionWindow | None], InputVersion]
"""(source, partition) -> what a snapshot of it is, or would be, made from."""


def receipts_now(arrived: Landed) -> Receipt:
    """Return what each source held when it was looked at.

    A partition that is refused has what is wrong with it for a receipt: it is due, fails alone
    with that message, and is due again when something else is wrong, or nothing.
    """

    def receipt(name: str, span: PartitionWindow | None) -> InputVersion:
        key = span.key if span else None
        found: dict[str, object]
        try:
            found = arrived.looks[name].receipt(key)
        except SourceError as error:
            if span is None:
                raise
            found = {"refused": str(error)}
        return receipt_version(name, key, found)

    return receipt


def _landed_nodes(
    pipeline: Pipeline, arrived: Landed, records: Mapping[Address, StageRecord]
) -> list[Node]:
    """The data stages of what has landed; a table that is still being written counts as it was."""
    left = {name for name in pipeline.spec.sources if None in arrived.looks[name].waiting}
    never_made = {name for name in left if raw_address(pipeline, name, None) not in records}
    return [
        node
        for node in _nodes(pipeline, arrived, records)
        if node.address.source not in never_made or node.address.stage not in SOURCE_STAGES
    ]


def _nodes(
    pipeline: Pipeline, arrived: Landed, records: Mapping[Address, StageRecord]
) -> list[Node]:
    """The data stages; what a source does not have, or not whole, stays as it was read."""
    now, then = receipts_now(arrived), receipts_published(pipeline, records)

    def receipt(name: str, span: PartitionWindow | None) -> InputVersion:
        return (now if arrived.holds(name, span.key if span else None) else then)(name, span)

    return left_as_read(arrived, data_nodes(pipeline, arrived, receipt), records)


def left_as_read(
    arrived: Landed, nodes: Sequence[Node], records: Mapping[Address, StageRecord]
) -> list[Node]:
    """The nodes, but that no other code makes a snapshot due that cannot be read again."""
    return [
        node
        if node.address.stage != RAW
        or arrived.holds(node.address.source or "", node.address.partition)
        else _under_published_code(node, records)
        for node in nodes
    ]


def published(pipeline: Pipeline, records: Mapping[Address, StageRecord]) -> Landed:
    """The partitions of which every partitioned source has a snapshot."""
    known = windows(pipeline.spec.partitions, Sources.now())
    cut = [name for name, source in pipeline.spec.sources.items() if source.partitioned]
    return Landed(
        tuple(
            w for w in known if all(raw_address(pipeline, name, w.key) in records for name in cut)
        )
    )


def receipts_published(pipeline: Pipeline, records: Mapping[Address, StageRecord]) -> Receipt:
    """Return what each published snapshot was made from; the source itself is not looked at."""

    def receipt(name: str, span: PartitionWindow | None) -> InputVersion:
        record = records.get(raw_address(pipeline, name, span.key if span else None))
        if record is None:
            return receipt_version(name, None, {})
        return record.inputs[0]

    return receipt


def data_nodes(pipeline: Pipeline, arrived: Landed, receipt: Receipt) -> list[Node]:
    """Sources, validated and derived tables, features, and what is served of them, in order."""
    nodes = _source_nodes(pipeline, arrived, receipt)
    for table in pipeline.spec.tables:
        nodes += _function_nodes(
            pipeline, arrived, table_reads(pipeline, table), "derived_table", table
        )
    nodes += _function_nodes(pipeline, arrived, feature_reads(pipeline), "feature_set")
    return nodes + _online_nodes(pipeline, arrived)


def plan_model(
    pipeline: Pipeline,
    feature_keys: Sequence[str | None],
    fresh: str | None,
) -> Plan:
    """The plan of training_set, trained_model, evaluation_report and released_model."""
    return plan(
        model_nodes(pipeline, feature_keys, fresh),
        records_by_address(pipeline.store, pipeline.name),
    )


def model_nodes(
    pipeline: Pipeline, feature_keys: Sequence[str | None], fresh: str | None = None
) -> list[Node]:
    """The model's stages over one window of features."""
    name = pipeline.name
    features = tuple(Address(name, "feature_set", partition=key) for key in feature_keys)
    data, model = Address(name, "training_set"), Address(name, "trained_model")
    report, training = Address(name, "evaluation_report"), f"{name}__train"
    return [
        Node(data, code_version_of(pipeline, "training_set"), features),
        Node(
            Address(name, "checkpoints"),
            code_version_of(pipeline, "checkpoints"),
            (data,),
            salt=fresh,
            winner=pipeline.winner,
            step=training,
        ),
        Node(
            model,
            code_version_of(pipeline, "trained_model"),
            (data,),
            salt=fresh,
            winner=pipeline.winner,
            step=training,
        ),
        Node(report, code_version_of(pipeline, "evaluation_report"), (model, data)),
        Node(
            Address(name, "released_model"),
            code_version_of(pipeline, "released_model"),
            (model, report),
        ),
    ]


def study_node(pipeline: Pipeline) -> Node:
    """The study of a pipeline that has a search. It is in no plan: people ask for it."""
    address = Address(pipeline.name, SEARCH_STAGE)
    return Node(
        address, code_version_of(pipeline, SEARCH_STAGE), (Address(pipeline.name, "training_set"),)
    )


def under_published_code(
    nodes: Sequence[Node], records: Mapping[Address, StageRecord]
) -> list[Node]:
    """The nodes as if no code had changed: what is due then is due because data changed.

    Other columns are other data: a partition that is made from now on has them, so all are due.
    """
    return [
        node if _has_other_columns(node, records) else _under_published_code(node, records)
        for node in nodes
    ]


def _has_other_columns(node: Node, records: Mapping[Address, StageRecord]) -> bool:
    record = records.get(node.address)
    return bool(record and column_changes(node, record))


def _under_published_code(node: Node, records: Mapping[Address, StageRecord]) -> Node:
    record = records.get(node.address)
    return replace(node, code_version=record.code_version) if record else node


def records_by_address(store: SnapshotStore, pipeline: str) -> Mapping[Address, StageRecord]:
    """Every record of a pipeline at the head of ``main``; the recalled ones are marked as such."""
    commit = store.resolve("main")
    bad = quarantine(store, commit)
    records = read_records(store, commit, pipeline)
    return {Address.of(record.key, record.partition): _marked(record, bad) for record in records}


def _marked(record: StageRecord, bad: Quarantine) -> StageRecord:
    recall = bad.of_record(record)
    if recall is None:
        return record
    return record.model_copy(update={"attributes": {**record.attributes, RECALLED: recall.id}})


def _source_nodes(pipeline: Pipeline, arrived: Landed, receipt: Receipt) -> list[Node]:
    nodes: list[Node] = []
    for name, source in pipeline.spec.sources.items():
        spans: Sequence[PartitionWindow | None] = arrived.windows if source.partitioned else [None]
        raw_code = code_version_of(pipeline, "raw_snapshot", name)
        table_code = code_version_of(pipeline, "validated_table", name)
        for span in spans:
            key = span.key if span else None
            raw = Address(pipeline.name, RAW, name, key)
            table = Address(pipeline.name, "validated_table", name, key)
            columns = dict(source.columns)
            nodes.append(Node(raw, raw_code, fixed=(receipt(name, span),), columns=columns))
            nodes.append(Node(table, table_code, (raw,), columns=columns))
    return nodes


def _function_nodes(
    pipeline: Pipeline, arrived: Landed, reads: Reads, stage: str, table: str | None = None
) -> list[Node]:
    """One node for each partition that a team's function makes."""
    code = code_version_of(pipeline, stage, table)
    nodes: list[Node] = []
    for key in reader_partitions(pipeline, arrived, reads.reader):
        inputs = tuple(a for addresses in reads.addresses(key).values() for a in addresses)
        nodes.append(Node(Address(pipeline.name, stage, table, key), code, inputs))
    return nodes


def _online_nodes(pipeline: Pipeline, arrived: Landed) -> list[Node]:
    online = pipeline.spec.online
    if online is None:
        return []
    newest = reader_partitions(pipeline, arrived, "feature_set")[-online.look_back - 1 :]
    if not newest:  # before the first look-back is whole there is nothing to serve
        return []
    features = tuple(Address(pipeline.name, "feature_set", partition=key) for key in newest)
    name = "online_features"
    return [Node(Address(pipeline.name, name), code_version_of(pipeline, name), features)]


def reader_partitions(pipeline: Pipeline, arrived: Landed, reader: str) -> list[str | None]:
    """Partitions of ``feature_set`` or a derived table whose whole look-back has landed.

    [None] for what has no partitions.
    """
    whole = reader != "feature_set" and not pipeline.spec.is_partitioned(reader)
    if whole or pipeline.spec.partitions.cadence == "none":
        return [None]
    keys = [w.key for w in windows(pipeline.spec.partitions, Sources.now())]
    have, back = set(arrived.keys), pipeline.warm_up(reader)
    return [
        key
        for number, key in enumerate(keys)
        if number >= back and have.issuperset(keys[number - back : number + 1])
    ]
