"""Checks that the present sources, lock and stage code are those that made a claim."""

from collections.abc import Iterator, Sequence

from ml_assets.errors import SpecError, StorageError
from ml_assets.extras.prove.claim import address_of
from ml_assets.graph.code_version import code_version_of, file_digests
from ml_assets.records.load_release import held_manifest
from ml_assets.records.record_history import Made
from ml_assets.records.run_record import MAIN_PACKAGES, Environment, RunRecord
from ml_assets.spec.training_program.identity import difference, part_of, program_here
from ml_assets.store.kept_code import network_of
from ml_assets.store.pipeline_context import Pipeline


def package_differences(records: Sequence[RunRecord], now: Environment) -> list[str]:
    """A sentence where the sources of the package, or the lock, are not as they were.

    Args:
        records: of the training and of the evaluation.
    """
    return list(dict.fromkeys(line for record in records for line in _package(record, now)))


def stage_differences(made: Sequence[tuple[Pipeline, Made]]) -> list[str]:
    """A sentence where functions, contracts or a stage's part of the spec are not as they were.

    Args:
        made: what is to be made again, each with the graph that would.
    """
    stages: dict[str, None] = {}
    for pipeline, one in made:
        address = address_of(one)
        if address.stage == "raw_snapshot":  # taken as it was read, whatever would read it now
            continue
        now, then = (
            code_version_of(pipeline, address.stage, address.source),
            one.record.code_version,
        )
        if now != then:
            files = ", ".join(file_digests(pipeline, address.stage, address.source))
            by = f" by {files}" if files else ""
            stages.setdefault(f"{address.key}{by} (code version {now}, {then} then)")
    if not stages:
        return []
    return [
        "the code or the spec that makes these has changed since (their part of the spec, their"
        f" functions or contracts, the package's code): {', '.join(stages)}"
    ]


def network_differences(pipeline: Pipeline, digest: str) -> list[str]:
    """A sentence for each file of a team's network that is not what made a model, with digests.

    Args:
        digest: of the model; of one that is gone nothing is known.
    """
    folder = pipeline.objects.here("models", digest)
    try:
        then = held_manifest(folder, digest).code
    except StorageError:
        return []
    if then is None:
        return []
    try:
        here = pipeline.network
    except SpecError as error:
        return [f"the network's code cannot be read: {error}"]
    now = here.digest if here else "none"
    if now == then:
        return []
    whole = f"the network's code: digest {now[:12]}, {then[:12]} then"
    try:
        was = network_of(pipeline.objects, then).parts
    except StorageError as error:
        return [f"{whole}. Which file it is cannot be found out: {error}"]
    parts = here.parts if here else {}
    return [
        f"{name} of the network: {parts.get(name, 'none')[:12]}, {was.get(name, 'none')[:12]} then"
        for name in sorted({*parts, *was})
        if parts.get(name) != was.get(name)
    ]


def package_notes(record: RunRecord, now: Environment) -> list[str]:
    """Versions of packages that are not those of then, where the lock is the same."""
    then = record.environment
    moved = [
        f"{name} {now.packages.get(name, 'none')}, {then.packages.get(name, 'none')} then"
        for name in MAIN_PACKAGES
        if name != "ml_assets" and now.packages.get(name) != then.packages.get(name)
    ]
    if then.python != now.python:
        moved.append(f"{now.python}, {then.python} then")
    return moved


def other_devices(then: RunRecord, now: RunRecord) -> str:
    """Return why the bits of two trainings need not be equal; empty: they have to be."""
    was, found = (_devices(record) for record in (then, now))
    if was != found:
        return f"another kind of device ({found}, {was} then)"
    gpus = any(node.machine.gpus for node in now.nodes)
    return f"on a GPU ({found}), where sums are added in any order" if gpus else ""


def _devices(record: RunRecord) -> str:
    return ", ".join(sorted({device for node in record.nodes for device in node.machine.devices}))


def _package(record: RunRecord, now: Environment) -> Iterator[str]:
    then = record.environment
    if then.code.sources != now.code.sources:
        yield f"the sources of ml_assets: {_code(now)}, {_code(then)} then. {_checkout(record)}"
    program = record.program
    said = difference(program, program_here(part_of("train", _family(record)))) if program else ""
    if said:
        yield f"the training program: {said}"
    if then.lock != now.lock:
        yield (f"requirements.lock: {(now.lock or 'none')[:12]}, {(then.lock or 'none')[:12]} then")


def _family(record: RunRecord) -> str:
    return record.config["model"]["family"]


def _code(environment: Environment) -> str:
    code = environment.code
    commit = f"commit {code.git_sha[:12]}" if code.git_sha else "no commit"
    dirty = f", with changes {code.changes[:12]}" if code.changes else ""
    return f"digest {code.sources[:12]} ({commit}{dirty})"


def _checkout(record: RunRecord) -> str:
    code = record.environment.code
    if code.git_sha is None:
        return f"Install ml_assets {code.version} as it was then"
    if code.changes is None:
        return f"Check it out: git checkout {code.git_sha[:12]}"
    return f"Check out {code.git_sha[:12]} and apply the changes that it had"
