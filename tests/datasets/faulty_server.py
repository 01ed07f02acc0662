"""A publisher on this machine whose answers a test chooses, with what it was asked."""

from __future__ import annotations

import http.server
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Answer = Callable[[http.server.BaseHTTPRequestHandler], None]


class FaultyServer:
    """Serves `answers[path]`; every other path is a 404. `asked` holds the paths in order."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.asked: list[str] = []
        self.stopping = threading.Event()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                answer = outer.answers.get(self.path)
                if answer is None:
                    self.send_error(404)
                else:
                    answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self.stopping.set()
        self.server.shutdown()
        self.server.server_close()

    def whole(
        self, data: bytes, kind: str = "text/plain", length: int | None = None, late_s: float = 0
    ) -> Answer:
        """Send `data`, announced as `length` bytes; the connection ends after what there is."""

        def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
            time.sleep(late_s)
            self._head(handler, 200, "Content-Type", kind, len(data) if length is None else length)
            handler.wfile.write(data)

        return answer

    def dripping(self, data: bytes, every_s: float) -> Answer:
        """Send a byte at a time."""

        def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
            self._head(handler, 200, "Content-Type", "text/plain", len(data))
            try:
                for byte in data:
                    handler.wfile.write(bytes([byte]))
                    if self.stopping.wait(every_s):
                        return
            except OSError:  # the reader has gone
                pass

        return answer

    def silent(self, seconds: float) -> Answer:
        """Take the request and say nothing."""
        return lambda handler: self.stopping.wait(seconds) and None

    def redirect(self, location: str) -> Answer:
        return lambda handler: self._head(handler, 302, "Location", location, 0)

    def _head(
        self, handler: http.server.BaseHTTPRequestHandler, status: int, name: str, value: str,
        length: int,
    ) -> None:  # fmt: skip
        handler.send_response(status)
        handler.send_header(name, value)
        handler.send_header("Content-Length", str(length))
        handler.end_headers()


@contextmanager
def faulty_server() -> Iterator[FaultyServer]:
    """A server for the time of a test."""
    server = FaultyServer()
    try:
        yield server
    finally:
        server.close()
