"""A run's page, live, on this machine only: it is drawn anew whenever the run has written something."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple
from urllib.parse import SplitResult, parse_qs, urlsplit

from goodness.errors import UserError
from goodness.report.page import draw, page_data, render, require_report_packages
from goodness.runs.lock import LOCK, is_held
from goodness.runs.run import Run
from goodness.runs.run_folder import RunFolder

LOOPBACK = ("127.0.0.1", "localhost")
"""Where the server listens, and the only names under which it answers: a page elsewhere that has its own name point to
this machine (DNS rebinding) is refused."""
WATCHED = ("config.json", "metrics.jsonl", "result.json")


def serve(
    run_path: str | os.PathLike[str],
    port: int = 0,
    *,
    host: str = "127.0.0.1",
    every: float = 2.0,
    announce: Callable[[str], object] = print,
) -> None:
    """Serve the run's page until Ctrl-C; `announce` is told its address. Port 0 takes a free one.

    `every` are the seconds after which an open page asks for news.
    """
    server = make_server(run_path, port, host=host, every=every)
    try:
        announce(server.url)
        server.serve_forever(poll_interval=0.2)
    except KeyboardInterrupt:
        pass
    finally:
        server.server_close()


def make_server(
    run_path: str | os.PathLike[str], port: int = 0, *, host: str = "127.0.0.1", every: float = 2.0
) -> PageServer:
    """The server, bound and not yet serving. What cannot be served is an error here."""
    require_report_packages()
    if host not in LOOPBACK:
        raise UserError(f"the page is for this machine only: host must be {' or '.join(LOOPBACK)}, got {host}")
    if not 0 < every < 3600:
        raise UserError(f"every must be a number of seconds above 0 and below 3600, got {every}")
    folder = RunFolder.open(run_path, for_writing=False)
    try:
        return PageServer((host, port), LivePage(Run(folder.path), every))
    except (OSError, OverflowError) as trouble:
        raise UserError(f"cannot listen on {host}:{port} ({trouble}); choose another --port") from trouble


class Version(NamedTuple):
    """The page at one moment of the run."""

    version: str
    html: str

    @property
    def inside(self) -> str:
        """What an open page exchanges: all that is between <main> and </main>."""
        return self.html.partition("<main>")[2].rpartition("</main>")[0]


class LivePage:
    """The newest page of a run; drawn when it is asked for, and only if the run has moved on."""

    def __init__(self, run: Run, every: float) -> None:
        self.run, self.every = run, every
        self._lock = threading.Lock()  # one drawing at a time: matplotlib is not made for two
        self._newest: Version | None = None

    def current(self) -> Version:
        with self._lock:
            version = _version(self.run.path)
            if self._newest is None or self._newest.version != version:
                data = page_data([self.run])  # an unfinished run has no weights yet that this would work on
                page = render(data, draw(data), live=self.every, version=version)
                self._newest = Version(version, page)
            return self._newest


def _version(path: Path) -> str:
    """Another text whenever the run has written, ended or died."""
    facts: list[object] = [is_held(path / LOCK)]
    for name in WATCHED:
        with contextlib.suppress(OSError):
            found = (path / name).stat()
            facts.append((name, found.st_mtime_ns, found.st_size))
    return hashlib.sha256(repr(facts).encode(errors="replace")).hexdigest()[:16]


class PageServer(ThreadingHTTPServer):
    """Answers GET / with the page and GET /data.json with what is new in it."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], page: LivePage) -> None:
        self.page = page
        super().__init__(address, _Handler)

    @property
    def url(self) -> str:
        return f"http://{self.server_address[0]}:{self.server_address[1]}/"


class _Handler(BaseHTTPRequestHandler):
    server: PageServer  # type: ignore[assignment]
    timeout = 30

    def do_GET(self) -> None:
        host = self.headers.get("Host", "")
        if host.rpartition(":")[0 if ":" in host else 2].lower() not in LOOPBACK:
            return self._answer(HTTPStatus.FORBIDDEN, "text/plain", "this page is served to its own machine only\n")
        try:
            asked = urlsplit(self.path)
        except ValueError:
            return self._answer(HTTPStatus.BAD_REQUEST, "text/plain", "that is no address\n")
        try:
            self._serve(asked)
        except Exception as trouble:  # whatever a folder holds, the reader gets a word, and the terminal stays quiet
            words = f"the page could not be made: {type(trouble).__name__}: {trouble}\n"
            self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, "text/plain", words)

    def _serve(self, asked: SplitResult) -> None:
        if asked.path == "/":
            return self._answer(HTTPStatus.OK, "text/html", self.server.page.current().html)
        if asked.path == "/data.json":
            newest, known = self.server.page.current(), parse_qs(asked.query).get("known")
            news = {"version": newest.version} | ({} if known == [newest.version] else {"html": newest.inside})
            return self._answer(HTTPStatus.OK, "application/json", json.dumps(news))
        return self._answer(HTTPStatus.NOT_FOUND, "text/plain", "there is / and /data.json\n")

    def _answer(self, status: HTTPStatus, kind: str, text: str) -> None:
        body = text.encode(errors="replace")
        with contextlib.suppress(ConnectionError):  # the reader has left meanwhile
            self.send_response(status)
            for name, value in (
                ("Content-Type", f"{kind}; charset=utf-8"),
                ("Content-Length", str(len(body))),
                ("Cache-Control", "no-store"),
                ("Content-Security-Policy", "frame-ancestors 'none'"),
                ("Cross-Origin-Resource-Policy", "same-origin"),
                ("X-Content-Type-Options", "nosniff"),
                ("Referrer-Policy", "no-referrer"),
            ):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """The terminal is for the address alone."""
