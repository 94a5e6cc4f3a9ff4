"""The Kustomize base and overlays: they build, validate, and keep the rules of the house."""

import copy
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from dagster._grpc.utils import default_sensor_grpc_timeout

from ml_assets.settings import read_cluster, read_lakefs, read_settings
from ml_assets_tests.deploy import chart, rules

DEPLOY = Path(__file__).parents[2] / "deploy"
OVERLAYS = ["dev", "staging", "production", "spot", "helm"]
"""What there is on a cluster; ``helm``: what the chart makes, and what stands beside it."""
WITH_SERVICES = OVERLAYS[:-1]
KUBERNETES = "1.34"
RULES = [
    rules.not_restricted,
    rules.unpinned,
    rules.unbounded,
    rules.cramped,
    rules.loose_tokens,
    rules.without_keys,
    rules.dangling,
    rules.selects_nothing,
    rules.secrets_written_down,
    rules.open_namespaces,
    rules.too_much_power,
]


@cache
def built(place: str) -> tuple[dict[str, Any], ...]:
    return kustomized(DEPLOY / place)


def kustomized(folder: Path) -> tuple[dict[str, Any], ...]:
    """What `kubectl apply -k` would send."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not installed: there is no Kustomize")
    done = subprocess.run(
        [kubectl, "kustomize", str(folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return tuple(yaml.safe_load_all(done.stdout))


def objects(overlay: str) -> list[dict[str, Any]]:
    if overlay == "helm":
        return copy.deepcopy([*built("helm"), *chart.made()])
    return copy.deepcopy(list(built(f"overlays/{overlay}")))


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_object_validates_by_the_published_schemas(overlay: str) -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="pip install '.[test]'").validate
    for one in objects(overlay):
        validate(one, KUBERNETES, strict=True)


def test_a_misspelt_field_does_not_validate() -> None:
    found = pytest.importorskip("kubernetes_validate", reason="pip install '.[test]'")
    service = next(one for one in objects("dev") if one["kind"] == "Service")
    service["spec"]["selectors"] = service["spec"].pop("selector")
    with pytest.raises(found.ValidationError):
        found.validate(service, KUBERNETES, strict=True)


@pytest.mark.parametrize("overlay", OVERLAYS)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_an_overlay_keeps_the_rule(rule: rules.Rule, overlay: str) -> None:
    assert rule(objects(overlay)) == []


def deployment(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return next(o for o in found if o["kind"] == "Deployment")["spec"]["template"]["spec"]


def named(found: Sequence[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    return next(o for o in found if (o["kind"], o["metadata"]["name"]) == (kind, name))


def a_policy(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return named(found, "NetworkPolicy", "training")["spec"]


Spoil = Callable[[list[dict[str, Any]]], object]
FAULTS: list[tuple[rules.Rule, Spoil]] = [
    (rules.not_restricted, lambda o: deployment(o)["securityContext"].update(runAsNonRoot=False)),
    (rules.not_restricted, lambda o: deployment(o)["securityContext"].pop("seccompProfile")),
    (rules.not_restricted, lambda o: deployment(o).update(hostNetwork=True)),
    (
        rules.not_restricted,
        lambda o: deployment(o)["containers"][0]["securityContext"].pop("capabilities"),
    ),
    (rules.unpinned, lambda o: deployment(o)["containers"][0].update(image="a/b:latest")),
    (rules.unpinned, lambda o: deployment(o)["containers"][0].update(image="r/ml-assets/a:1.2.3")),
    (rules.unbounded, lambda o: deployment(o)["containers"][0]["resources"].pop("limits")),
    (
        rules.cramped,
        lambda o: named(o, "Deployment", "ml-assets-code")["spec"]["template"]["spec"][
            "containers"
        ][0]["resources"]["limits"].pop("ephemeral-storage"),
    ),
    (
        rules.loose_tokens,
        lambda o: named(o, "Deployment", "ml-assets-code")["spec"]["template"]["spec"].pop(
            "automountServiceAccountToken"
        ),
    ),
    (
        rules.without_keys,
        lambda o: named(o, "ServiceAccount", "ml-assets-orchestrator").pop("imagePullSecrets"),
    ),
    (
        rules.dangling,
        lambda o: named(o, "ServiceAccount", "default").update(imagePullSecrets=[{"name": "x"}]),
    ),
    (rules.dangling, lambda o: deployment(o).update(serviceAccountName="nobody")),
    (
        rules.dangling,
        lambda o: deployment(o)["containers"][0]["envFrom"][0].update(configMapRef={"name": "x"}),
    ),
    (rules.selects_nothing, lambda o: a_policy(o).update(podSelector={"matchLabels": {"a": "b"}})),
    (
        rules.secrets_written_down,
        lambda o: named(o, "ConfigMap", "ml-assets-settings")["data"].update(A="redis://me:pw@r"),
    ),
    (
        rules.open_namespaces,
        lambda o: o.remove(named(o, "NetworkPolicy", "default-deny")),
    ),
    (
        rules.too_much_power,
        lambda o: named(o, "Role", "training-launcher")["rules"][0].update(verbs=["*"]),
    ),
    (
        rules.too_much_power,
        lambda o: named(o, "Role", "training-launcher")["rules"][0].update(resources=["secrets"]),
    ),
]


@pytest.mark.parametrize(("rule", "spoil"), FAULTS)
def test_a_planted_fault_is_found(rule: rules.Rule, spoil: Spoil) -> None:
    found = objects("dev")
    spoil(found)
    assert len(rule(found)) == 1


@pytest.mark.parametrize("overlay", WITH_SERVICES)
def test_the_digest_of_an_image_reaches_all_that_name_it(overlay: str) -> None:
    found = objects(overlay)
    images = {name: container["image"] for name, container in rules.containers(found)}
    settings = named(found, "ConfigMap", "ml-assets-settings")["data"]
    code = named(found, "Deployment", "ml-assets-code")["spec"]["template"]["spec"]["containers"][0]
    assert settings["ML_ASSETS_TRAINING_IMAGE"] == images["training-image/training"]
    assert {"name": "DAGSTER_CURRENT_IMAGE", "value": images["ml-assets-code/code"]} in code["env"]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_everything_is_in_the_namespace_that_the_settings_name(overlay: str) -> None:
    found = objects(overlay)
    (namespace,) = [one["metadata"]["name"] for one in found if one["kind"] == "Namespace"]
    settings = named(found, "ConfigMap", "ml-assets-settings")["data"]
    wide = ("Namespace", "PriorityClass")
    assert settings["ML_ASSETS_NAMESPACE"] == namespace
    named_by_helm = {(o["kind"], o["metadata"]["name"]) for o in chart.made()}
    inside = [o for o in found if (o["kind"], o["metadata"]["name"]) not in named_by_helm]
    assert {o["metadata"]["namespace"] for o in inside if o["kind"] not in wide} == {namespace}
    subjects = [s for o in found if o["kind"] == "RoleBinding" for s in o["subjects"]]
    assert {(s["name"], s["namespace"]) for s in subjects} == {
        ("ml-assets-orchestrator", namespace)
    }


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_settings_are_settings(overlay: str) -> None:
    """With the keys that docs/cluster.md puts into the Secret they are all that a pod needs."""
    settings = named(objects(overlay), "ConfigMap", "ml-assets-settings")["data"]
    environment = settings | dict.fromkeys(secret_keys("ml-assets-orchestrator"), "hush")
    cluster = read_cluster(environment)
    assert cluster.image == settings["ML_ASSETS_TRAINING_IMAGE"]
    assert cluster.secret == "ml-assets-training"
    assert bool(cluster.spot_selector) == bool(cluster.spot_taints) == (overlay == "spot")
    assert read_lakefs(environment).endpoint == settings["LAKEFS_ENDPOINT"]
    missing = [name for name in variables_of_the_instance() if name not in environment]
    assert missing == []


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_daemon_gives_a_tick_five_minutes(
    overlay: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = objects(overlay)
    settings = named(found, "ConfigMap", "ml-assets-settings")
    (daemon,) = (o for o in found if o["kind"] == "Deployment" and "daemon" in named_of(o))
    (container,) = daemon["spec"]["template"]["spec"]["containers"]
    assert {"configMapRef": {"name": named_of(settings)}} in container["envFrom"]
    for name in ("DAGSTER_SENSOR_GRPC_TIMEOUT_SECONDS", "DAGSTER_GRPC_TIMEOUT_SECONDS"):
        monkeypatch.delenv(name, raising=False)
    assert default_sensor_grpc_timeout() == 60
    for name, value in settings["data"].items():
        monkeypatch.setenv(name, value)
    assert default_sensor_grpc_timeout() == 300


def named_of(one: dict[str, Any]) -> str:
    return one["metadata"]["name"]


def secret_keys(secret: str) -> set[str]:
    """The keys that docs/cluster.md says a Secret is made with."""
    text = (DEPLOY.parent / "docs" / "cluster.md").read_text().replace("\\\n", " ")
    made = re.findall(rf"secret (?:generic )?{secret} (.*)", text)
    return {key for line in made for key in re.findall(r"--from-literal=(\w+)=", line)}


@pytest.mark.parametrize("production", ["production", "spot", "helm"])
@pytest.mark.parametrize(
    "store",
    ["ML_ASSETS_OBJECTS", "ML_ASSETS_SNAPSHOTS", "MLFLOW_TRACKING_URI", "DAGSTER_PG_DB"],
)
def test_no_two_environments_share_a_store(store: str, production: str) -> None:
    """A release in dev would move the alias of production in an MLflow that is of both."""
    environments = [objects(one) for one in ("dev", "staging", production)]
    where = [named(one, "ConfigMap", "ml-assets-settings")["data"][store] for one in environments]
    assert len({*where}) == len(where)


def variables_of_the_instance() -> set[str]:
    """What dagster.yaml takes from the environment."""
    text = (DEPLOY / "dagster" / "dagster.yaml").read_text()
    return set(re.findall(r"\{env: (\w+)\}", text))


def test_the_page_says_how_each_secret_is_made() -> None:
    other = {"ml-assets-registry", *(f"ml-assets-{who}-login" for who in ("readers", "operators"))}
    assert all(secret_keys(name) for name in rules.SECRETS - other)
    assert "OAUTH2_PROXY_COOKIE_SECRET" in secret_keys(r"ml-assets-\$who-login")


@pytest.mark.parametrize("overlay", ["production", "helm"])
def test_a_ui_is_given_what_the_instance_needs_and_no_key_besides(
    overlay: str,
) -> None:
    """A webserver is given what the instance needs: no key that signs releases, none of lakeFS."""
    found = objects(overlay)
    servers = [
        container
        for name, container in rules.containers(found)
        if name.startswith(
            ("dagster-readers-ui/web", "dagster-operators-ui/web", "dagster-webserver")
        )
    ]
    assert len(servers) == 2
    for server in servers:
        secrets = [source["secretRef"] for source in server["envFrom"] if "secretRef" in source]
        assert secrets == [{"name": "ml-assets-ui"}]
    settings = named(found, "ConfigMap", "ml-assets-settings")["data"]
    keys = secret_keys("ml-assets-ui")
    assert set(variables_of_the_instance()) - set(settings) <= keys
    assert keys - set(variables_of_the_instance()) == {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}


def test_dagster_itself_is_reached_through_the_login_only() -> None:
    for ui in ("dagster-readers-ui", "dagster-operators-ui"):
        found = objects("production")
        parts = named(found, "Deployment", ui)["spec"]["template"]["spec"]["containers"]
        server, login = parts[0], parts[-1]
        arguments = server["args"]
        assert arguments[arguments.index("--host") + 1] == "127.0.0.1"
        assert "ports" not in server
        (port,) = named(found, "Service", ui)["spec"]["ports"]
        assert port["targetPort"] == login["ports"][0]["name"]
        assert ("--read-only" in arguments) == (ui == "dagster-readers-ui")


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_no_page_of_another_site_can_use_a_login(overlay: str) -> None:
    """The cookie does not go along, and the server behind the login takes no request of theirs."""
    found = objects(overlay)
    spread = dict(rules.containers(found))
    logins = [one for name, one in spread.items() if name.endswith("/login")]
    assert len(logins) == 2
    for login in logins:
        assert {"--cookie-samesite=lax", "--cookie-secure=true"} <= set(login["args"])
        assert not [arg for arg in login["args"] if "pass-host-header" in arg], "it names our host"
    servers = [one for name, one in spread.items() if name.endswith("/webserver")]
    for server in servers:
        assert server["args"][:3] == ["python", "-m", "ml_assets.adapters.webserver"]
    settings = named(found, "ConfigMap", "ml-assets-settings")["data"]
    readers = settings["ML_ASSETS_UI_URL"].removeprefix("https://")
    assert settings["ML_ASSETS_UI_HOSTS"] == f"operators.{readers}"


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_links_to_reports_lead_to_what_the_readers_login_serves(overlay: str) -> None:
    """As the login has the path, so has the link; and nobody else can ask the port."""
    found = objects(overlay)
    settings = named(found, "ConfigMap", "ml-assets-settings")["data"]
    assert settings["ML_ASSETS_REPORTS_URL"] == f"{settings['ML_ASSETS_UI_URL']}/reports"
    spread = dict(rules.containers(found))
    (pod,) = {name.split("/")[0] for name in spread if name.endswith("/reports")}
    reports, login = spread[f"{pod}/reports"], spread[f"{pod}/login"]
    assert reports["args"] == ["ml-assets", "ops", "serve-reports", "--port", "3001"]
    assert "--upstream=http://127.0.0.1:3001/reports/" in login["args"]
    assert login["envFrom"] == [{"secretRef": {"name": "ml-assets-readers-login"}}]
    assert "ports" not in reports


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_reports_are_given_keys_that_read_and_none_that_signs(overlay: str) -> None:
    found = objects(overlay)
    (reports,) = [one for name, one in rules.containers(found) if name.endswith("/reports")]
    settings = named(found, "ConfigMap", "ml-assets-settings")["data"]
    keys = secret_keys("ml-assets-reports")
    assert [next(iter(one.values()))["name"] for one in reports["envFrom"]] == [
        "ml-assets-settings",
        "ml-assets-reports",
    ]
    assert keys == {
        *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "ML_ASSETS_TRUSTED_KEYS"),
        *("LAKEFS_ACCESS_KEY_ID", "LAKEFS_SECRET_ACCESS_KEY"),
    }
    given = {"ML_ASSETS_HOME": "/var/lib/ml-assets", **dict.fromkeys(keys, "hush")}
    assert read_settings(settings | given).reports_url == settings["ML_ASSETS_REPORTS_URL"]
