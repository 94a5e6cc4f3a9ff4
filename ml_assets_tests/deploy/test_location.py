"""The code location with the settings of an overlay: it loads, with the profile of a cluster."""

import json
import os
from pathlib import Path

from ml_assets_tests.deploy.test_manifests import named, objects, secret_keys
from ml_assets_tests.fresh import said_by

PROJECT = Path(__file__).parents[2]
PROGRAM = """
import json, sys
import ml_assets.definitions as d

defs = d.build(d.read_settings())
found = defs.get_repository_def()
flights = [a for a in found.asset_graph.assets_defs if a.partitions_def is not None]
print(json.dumps({
    "jobs": {job.name: job.executor_def.name for job in found.get_all_jobs()},
    "runs": sorted({str(a.backfill_policy.max_partitions_per_run) for a in flights}),
    "loaded": sorted({name.partition(".")[0] for name in sys.modules}),
}))
"""


def test_the_code_location_of_production_loads(tmp_path: Path) -> None:
    """As its pod does: of the environment, with nothing on its disk."""
    settings = named(objects("production"), "ConfigMap", "ml-assets-settings")["data"]
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("ML_ASSETS_")}
    said = said_by(
        PROGRAM,
        env=inherited
        | settings
        | dict.fromkeys(secret_keys("ml-assets-orchestrator"), "hush")
        | {"ML_ASSETS_HOME": str(tmp_path / "home"), "DAGSTER_HOME": ""},
        cwd=PROJECT,
    )
    found = json.loads(said.splitlines()[-1])
    own = {"flight_delays__refresh", "flight_delays__sources", "__ASSET_JOB"}
    assert {found["jobs"].get(job) for job in own} == {"in_pods"}, found["jobs"]
    assert found["runs"] == ["1"]
    assert {"torch", "kubernetes", "dagster_k8s", "boto3", "mlflow"} & set(found["loaded"]) == set()
