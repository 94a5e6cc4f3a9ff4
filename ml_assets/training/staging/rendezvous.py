"""How the pods of one attempt find each other."""

import socket
import time
from dataclasses import dataclass

from ml_assets.spec.program.start import Rendezvous

_BETWEEN_TRIES = 0.2


@dataclass(frozen=True)
class Meeting:
    """Where the pods meet, and how the others reach this one."""

    endpoint: str
    """host:port of the first pod."""
    address: str
    index: int

    def rendezvous(self, session: str, attempt: int) -> Rendezvous:
        """As torchrun is told."""
        run = f"{session}-a{attempt}"
        return Rendezvous(self.endpoint, self.address, is_host=self.index == 0, run=run)

    def wait_for_the_first(self) -> None:
        """Until the first pod listens: its image may take longer to come than torchrun waits."""
        if self.index == 0:
            return
        host, _, port = self.endpoint.rpartition(":")
        while True:
            try:
                socket.create_connection((host, int(port)), timeout=5.0).close()
                return
            except OSError:
                time.sleep(_BETWEEN_TRIES)
