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

    def whole(self, data: bytes, kind: str = "text/plain", *, length: int | None = None) -> Answer:
        """Send `data`, announced as `length` bytes; the connection ends after what there is."""

        def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
            handler.send_response(200)
            handler.send_header("Content-Type", kind)
            handler.send_header("Content-Length", str(len(data) if length is None else length))
            handler.end_headers()
            handler.wfile.write(data)

        return answer

    def dripping(self, data: bytes, every_s: float) -> Answer:
        """Send a byte at a time."""

        def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
            handler.send_response(200)
            handler.send_header("Content-Length", str(len(data)))
            handler.end_headers()
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

    def waiting(self, data: bytes, seconds: float) -> Answer:
        """Send all of it, late."""
        send = self.whole(data)

        def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
            time.sleep(seconds)
            send(handler)

        return answer

    def redirect(self, location: str) -> Answer:
        def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
            handler.send_response(302)
            handler.send_header("Location", location)
            handler.send_header("Content-Length", "0")
            handler.end_headers()

        return answer


@contextmanager
def faulty_server() -> Iterator[FaultyServer]:
    """A server for the time of a test."""
    server = FaultyServer()
    try:
        yield server
    finally:
        server.close()
