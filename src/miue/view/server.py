"""The server of the page: on this machine alone, for those who know the random token in its address.

Python's own server with a thread for each connection serves one person well, and needs no package that would have
to be kept free of faults.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Any
from urllib.parse import urlsplit

from miue.common.errors import ConfigError, MiueError, WriteError
from miue.view.content import Content

HOST = "127.0.0.1"
NAMES = (HOST, "localhost")
"""What this machine is called in a request; any other name is of a page that was led here (DNS rebinding)."""
LONGEST_BODY = 64 << 10  # bytes
LONGEST_NOTE = 4000  # characters
WORKERS = 3  # answers that are made at once; each thread keeps memory
SECONDS = 60  # until a connection on which nothing comes is closed
HTML, JS, CSS, JSON = ("text/html", "text/javascript", "text/css", "application/json")
SCRIPTS = ("openseadragon.min.js", "start.js", "cases.js", "slide.js", "layers.js", "bag.js", "elements.js")
FILES = {"view.css": CSS, **dict.fromkeys(SCRIPTS, JS)}
"""The files of the page and what they are; no others are served."""
STYLE_OF_OPENSEADRAGON = "sha256-9xTiqzfwFaL2SGb1rmr8gysEwVVjIvqWAgmZgqFqpEE="
"""The one style that it adds to the page."""
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; connect-src 'self'; "
    f"img-src 'self' data: blob:; style-src 'self' '{STYLE_OF_OPENSEADRAGON}'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


@dataclass(frozen=True)
class Answer:
    """What is sent back.

    Attributes:
        body: of it.
        kind: media type of the body.
        status: of HTTP.
        keep: whether the browser may keep it.
    """

    body: bytes
    kind: str = JSON
    status: HTTPStatus = HTTPStatus.OK
    keep: bool = False


def _found(body: bytes | None, kind: str, *, keep: bool = False) -> Answer | None:
    return None if body is None else Answer(body, kind, keep=keep)


def _json(content: Any, status: HTTPStatus = HTTPStatus.OK) -> Answer:
    return Answer(json.dumps(content, ensure_ascii=False, allow_nan=False).encode(), status=status)


def _error(text: str, status: HTTPStatus) -> Answer:
    return _json({"error": text}, status)


@dataclass
class Site:
    """Answers to what a browser asks for.

    Attributes:
        content: what the page shows.
        token: without which nothing is answered.
    """

    content: Content
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    _workers: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(WORKERS), repr=False)

    def answer(
        self, method: str, target: str, headers: Any, read_body: Callable[[], bytes | None] = lambda: b""
    ) -> Answer:
        """Return the answer to a request.

        Args:
            method: GET or POST.
            target: path that is asked for.
            headers: of the request.
            read_body: returns the body of the request; None where it is too long.
        """
        host, origin = headers.get("Host", ""), headers.get("Origin")
        if host.rpartition(":")[0] not in NAMES and host not in NAMES:
            return _error("this page is for this machine alone", HTTPStatus.FORBIDDEN)
        if origin is not None and origin != f"http://{host}":
            return _error("another page asks for this", HTTPStatus.FORBIDDEN)
        token, slash, path = urlsplit(target).path.removeprefix("/").partition("/")
        if not secrets.compare_digest(token.encode(), self.token.encode()):
            return _error("the token in the address is missing or another one", HTTPStatus.FORBIDDEN)
        if method == "POST":
            is_json = headers.get("Content-Type", "").partition(";")[0].strip() == JSON
            if path != "verdicts" or origin is None or not is_json:
                return _error("only verdicts are taken, as JSON, from the page", HTTPStatus.FORBIDDEN)
            body = read_body()
            if body is None:
                return _error("too long", HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            return self._take(body)
        if not slash:
            return _error("no such page", HTTPStatus.NOT_FOUND)
        try:
            return self._workers.submit(self._get, path).result() or _error("no such page", HTTPStatus.NOT_FOUND)
        except MiueError as error:
            return _error(str(error), HTTPStatus.UNPROCESSABLE_ENTITY)

    def _get(self, path: str) -> Answer | None:
        content = self.content
        if path == "":
            return Answer(_file("index.html"), HTML)
        if path in FILES:
            return Answer(_file(path), FILES[path])
        if path == "run.json":
            return _json(content.overview)
        if path == "verdicts.json":
            return _json(content.verdicts.read())
        match = re.fullmatch(
            r"bags/(\d{1,9})(?:/(\d{1,9})/(values|patch|tile)((?:/\d{1,9}){0,3}))?", path, re.ASCII
        )
        if match is None or int(match[1]) >= len(content.ids):
            return None
        if match[2] is None:
            return _json(content.bag(int(match[1])))
        bag, picture, numbers = int(match[1]), int(match[2]), list(map(int, match[4].split("/")[1:]))
        if (match[3], len(numbers)) == ("values", 0):
            return _found(content.values(bag, picture), "application/octet-stream")
        if (match[3], len(numbers)) == ("patch", 1):
            return _found(content.patch(bag, picture, *numbers), "image/jpeg", keep=True)
        if (match[3], len(numbers)) == ("tile", 3):
            return _found(content.tile(bag, picture, *numbers), "image/jpeg", keep=True)
        return None

    def _take(self, body: bytes) -> Answer:
        """Write a verdict: {"bag": its row, "label": one of the choices or "", "note": a text}."""
        content = self.content
        try:
            given = json.loads(body)
            bag, label, note = given["bag"], given["label"], given["note"]
        except (ValueError, TypeError, KeyError, RecursionError):
            return _error("expected bag, label and note", HTTPStatus.BAD_REQUEST)
        is_row = isinstance(bag, int) and not isinstance(bag, bool) and 0 <= bag < len(content.ids)
        if not is_row or label not in (*content.choices, content.overview["cannotTell"], ""):
            return _error("no such bag or label", HTTPStatus.BAD_REQUEST)
        if not isinstance(note, str) or len(note) > LONGEST_NOTE:
            return _error(f"a note has at most {LONGEST_NOTE:,} characters", HTTPStatus.BAD_REQUEST)
        try:
            verdict = content.verdicts.append(content.ids[bag], label, " ".join(note.split()))
        except MiueError as error:
            full = isinstance(error, WriteError)
            return _error(str(error), HTTPStatus.INSUFFICIENT_STORAGE if full else HTTPStatus.CONFLICT)
        return _json(verdict)


def _file(name: str) -> bytes:
    return (resources.files("miue.view") / "page" / name).read_bytes()


class _Handler(BaseHTTPRequestHandler):
    """One connection of a browser."""

    protocol_version = "HTTP/1.1"
    server_version, sys_version = "miue", ""
    timeout = SECONDS
    site: Site

    def do_GET(self) -> None:
        """Answer a request for a page, a tile or numbers."""
        self._send(self.site.answer("GET", self.path, self.headers))

    def do_POST(self) -> None:
        """Take a verdict."""
        self._send(self.site.answer("POST", self.path, self.headers, self._body))

    def log_message(self, format: str, *args: Any) -> None:
        """Write nothing: addresses hold the token."""

    def _body(self) -> bytes | None:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > LONGEST_BODY:
            return None
        return self.rfile.read(int(length))

    def _send(self, answer: Answer) -> None:
        if self.command == "POST" and answer.status >= HTTPStatus.BAD_REQUEST:
            self.close_connection = True  # of which the body may not have been read
        try:
            self.send_response(answer.status)
            self.send_header("Content-Type", f"{answer.kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(answer.body)))
            self.send_header("Cache-Control", "private, max-age=3600" if answer.keep else "no-store")
            for name, value in HEADERS.items():
                self.send_header(name, value)
            if self.close_connection:
                self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(answer.body)
        except OSError:  # a browser that has gone on
            self.close_connection = True


class Server(ThreadingHTTPServer):
    """The server of a site.

    Args:
        site: what it answers.
        port: to listen at; 0 for a free one.

    Raises:
        ConfigError: a port that is in use, or may not be used.
    """

    daemon_threads = True

    def __init__(self, site: Site, port: int = 0) -> None:
        handler = type("Handler", (_Handler,), {"site": site})
        try:
            super().__init__((HOST, port), handler)
        except OSError as error:
            got = f"{port}, {error.strerror or error}"
            wanted, fix = "one that is free", "choose another port, or 0 for any free one"
            raise ConfigError(item="port", wanted=wanted, got=got, fix=fix) from error
        self.site = site

    @property
    def address(self) -> str:
        """Where a browser finds the page."""
        return f"http://{HOST}:{self.server_address[1]}/{self.site.token}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Let a connection that fails end; a fault of ours is a traceback."""
        import sys

        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)
