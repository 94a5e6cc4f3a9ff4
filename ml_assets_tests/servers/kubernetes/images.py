"""Which images can be pulled: all, but those of a host that cannot be and those a test names."""

import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path

_REFERENCE = re.compile(
    r"[a-z0-9]+([._-]+[a-z0-9]+)*(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*"
    r"(:[\w][\w.-]{0,127})?(@sha256:[0-9a-f]{64})?"
)


def resolved(image: str) -> str:
    """As the kubelet reports it once it was pulled: repository and digest, without a tag."""
    name, _, digest = image.partition("@")
    host, slash, rest = name.rpartition("/")
    repository = f"{host}{slash}{rest.partition(':')[0]}"
    return f"{repository}@{digest or 'sha256:' + hashlib.sha256(name.encode()).hexdigest()}"


@dataclass
class Images:
    """`failing` maps an image to what the registry says; a test fills and empties it."""

    failing: dict[str, str] = field(default_factory=dict)
    absent: set[str] = field(default_factory=set)
    """Images that no node holds: with the policy Never they cannot start."""
    pulled: set[str] = field(default_factory=set)
    packages: dict[str, Path] = field(default_factory=dict)
    """Image -> the folder in which its Python finds its packages first; others have the tests'."""

    def problem(self, image: str, policy: str) -> tuple[str, str] | None:
        """(reason, message) of a container that waits for this image; None where it is there."""
        if not _REFERENCE.fullmatch(image):
            why = f'Failed to apply default image tag "{image}": couldn\'t parse image name'
            return "InvalidImageName", f'{why} "{image}": invalid reference format'
        if policy == "Never":
            if image in self.absent or self._refusal(image):
                told = f'Container image "{image}" is not present with pull policy of Never'
                return "ErrImageNeverPull", told
            return None
        if image in self.pulled and policy == "IfNotPresent":
            return None
        if why := self._refusal(image):
            told = f'failed to pull and unpack image "{image}": failed to resolve reference'
            return "ErrImagePull", f'{told} "{image}": {why}'
        self.pulled.add(image)
        return None

    def _refusal(self, image: str) -> str:
        if image in self.failing:
            return self.failing[image]
        host = image.partition("/")[0].partition(":")[0]
        if host.endswith(".invalid"):  # RFC 2606: such a name never resolves
            rest = image.partition("/")[2].partition(":")[0]
            url = f"https://{host}/v2/{rest}/manifests/latest"
            return f'failed to do request: Head "{url}": dial tcp: lookup {host}: no such host'
        return ""
