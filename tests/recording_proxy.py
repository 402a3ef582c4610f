"""A proxy in front of a server, which keeps the bytes of its answers with their times."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from socket import create_connection, socket
from time import monotonic


@dataclass
class Recording:
    """Answers through a proxy: its port, and the server's pieces, each with the time at which it arrived."""

    port: int
    pieces: list[tuple[float, bytes]] = field(default_factory=list)

    def times_of(self, part: bytes) -> list[float]:
        """Return the times of the pieces that contain a text."""
        return [at for at, piece in list(self.pieces) if part in piece]


@contextmanager
def recording(port: int) -> Iterator[Recording]:
    """Pass connections on to a port of this machine while the block lasts."""
    with socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        found = Recording(listener.getsockname()[1])
        threading.Thread(target=_accept, args=(listener, port, found), daemon=True).start()
        yield found


def _accept(listener: socket, port: int, found: Recording) -> None:
    with suppress(OSError):  # the listener is closed at the end
        while True:
            client, _ = listener.accept()
            server = create_connection(("127.0.0.1", port))
            threading.Thread(target=_pass_on, args=(client, server, None), daemon=True).start()
            threading.Thread(target=_pass_on, args=(server, client, found), daemon=True).start()


def _pass_on(source: socket, target: socket, found: Recording | None) -> None:
    with suppress(OSError), source, target:
        while piece := source.recv(65536):
            if found is not None:
                found.pieces.append((monotonic(), piece))
            target.sendall(piece)
