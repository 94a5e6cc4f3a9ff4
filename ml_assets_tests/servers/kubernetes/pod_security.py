"""Pod Security Admission at the level `restricted`, for namespaces that enforce it."""

from ml_assets_tests.servers.kubernetes.errors import Json, forbidden

LABEL = "pod-security.kubernetes.io/enforce"


def check(namespace: Json, pod: Json) -> None:
    """403 in a real server's words, all violations at once."""
    if (namespace["metadata"].get("labels") or {}).get(LABEL) != "restricted":
        return
    found = [told for told in (rule(pod) for rule in _RULES) if told]
    if found:
        why = f'violates PodSecurity "restricted:latest": {", ".join(found)}'
        raise forbidden("", "pods", pod["metadata"]["name"], why)


def _containers(pod: Json) -> list[tuple[str, Json]]:
    """(name, security context) of each container."""
    spec = pod["spec"]
    every = [*(spec.get("initContainers") or []), *spec["containers"]]
    return [(container["name"], container.get("securityContext") or {}) for container in every]


def _named(names: list[str]) -> str:
    listed = ", ".join(f'"{name}"' for name in names)
    return f"container{'s' if len(names) > 1 else ''} {listed}"


def _escalation(pod: Json) -> str:
    bad = [n for n, c in _containers(pod) if c.get("allowPrivilegeEscalation") is not False]
    must = "must set securityContext.allowPrivilegeEscalation=false"
    return f"allowPrivilegeEscalation != false ({_named(bad)} {must})" if bad else ""


def _capabilities(pod: Json) -> str:
    bad = []
    for name, context in _containers(pod):
        capabilities = context.get("capabilities") or {}
        dropped = "ALL" in (capabilities.get("drop") or [])
        if not dropped or set(capabilities.get("add") or []) - {"NET_BIND_SERVICE"}:
            bad.append(name)
    must = 'must set securityContext.capabilities.drop=["ALL"]'
    return f"unrestricted capabilities ({_named(bad)} {must})" if bad else ""


def _non_root(pod: Json) -> str:
    whole = (pod["spec"].get("securityContext") or {}).get("runAsNonRoot")
    bad = [n for n, c in _containers(pod) if c.get("runAsNonRoot", whole) is not True]
    must = "must set securityContext.runAsNonRoot=true"
    return f"runAsNonRoot != true (pod or {_named(bad)} {must})" if bad else ""


def _root(pod: Json) -> str:
    whole = (pod["spec"].get("securityContext") or {}).get("runAsUser") == 0
    bad = [name for name, context in _containers(pod) if context.get("runAsUser") == 0]
    found = (["pod"] if whole else []) + ([_named(bad)] if bad else [])
    return f"runAsUser=0 ({' and '.join(found)} must not set runAsUser=0)" if found else ""


def _seccomp(pod: Json) -> str:
    whole = ((pod["spec"].get("securityContext") or {}).get("seccompProfile") or {}).get("type")
    good = ("RuntimeDefault", "Localhost")
    bad = [
        name
        for name, context in _containers(pod)
        if (context.get("seccompProfile") or {}).get("type", whole) not in good
    ]
    must = 'must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"'
    return f"seccompProfile (pod or {_named(bad)} {must})" if bad else ""


def _volumes(pod: Json) -> str:
    allowed = {
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "persistentVolumeClaim",
        "projected",
        "secret",
    }
    bad = [v["name"] for v in pod["spec"].get("volumes") or [] if not allowed & set(v)]
    listed = ", ".join(f'"{name}"' for name in bad)
    return f"restricted volume types (volumes {listed} use a restricted type)" if bad else ""


_RULES = (_escalation, _capabilities, _volumes, _non_root, _root, _seccomp)
