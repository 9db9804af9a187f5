"""A loopback server that speaks the part of the Hub's API which huggingface_hub uses here.

It keeps what arrives, checks tokens, hides private repositories, and can be told to fail.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

WRITER, READER = "hf_mayWriteHere0000000000000", "hf_mayOnlyRead00000000000000"
LARGE = (".safetensors", ".jsonl")
"""What goes the way of large files (the real Hub decides by size and content)."""


@dataclass
class Repo:
    private: bool
    files: dict[str, bytes] = field(default_factory=dict)
    commits: int = 0


@dataclass
class Hub:
    """What the server has: repositories by (kind, name), stored blobs, and requests so far."""

    url: str = ""
    repos: dict[tuple[str, str], Repo] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)
    uploads: list[str] = field(default_factory=list)
    fail: dict[str, int] = field(default_factory=dict)
    """A part of a path -> the status that requests for it get."""
    fail_code: str = ""
    """The Hub's own word for such a failure."""

    def everything(self) -> bytes:
        """All bytes that arrived, of whatever file."""
        parts = [data for repo in self.repos.values() for data in repo.files.values()]
        return b"\n".join([*parts, *self.blobs.values()])


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *_: object) -> None:
        pass

    def _reply(self, status: int, body: Any = None, headers: dict[str, str] | None = None) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _refuse(self, status: int, code: str, text: str) -> None:
        self._reply(status, {"error": text}, {"X-Error-Code": code, "X-Error-Message": text})

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _handle(self) -> None:
        body = self._body()
        path = self.path.partition("?")[0]
        self.hub.requests.append((self.command, path))
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        for part, status in self.hub.fail.items():
            if part in path:
                return self._refuse(status, self.hub.fail_code, "told to fail")
        if path.startswith("/lfs/"):  # its address is secret enough on the real Hub
            return self._store(path.rpartition("/")[2], body)
        if token not in (WRITER, READER):
            return self._refuse(401, "", "Invalid credentials in Authorization header")
        writes = self.command == "POST" and path != "/api/validate-yaml"
        if writes and token == READER:
            return self._refuse(403, "", "you must use a write token")
        for pattern, act in _ROUTES:
            if found := re.fullmatch(pattern, path):
                return act(self, body, **found.groupdict())
        return self._refuse(404, "", f"no route {path}")

    do_GET = do_POST = do_PUT = do_HEAD = _handle

    def _store(self, oid: str, body: bytes) -> None:
        assert hashlib.sha256(body).hexdigest() == oid
        self.hub.blobs[oid] = body
        self.hub.uploads.append(oid)
        self._reply(200, {})

    def validate(self, body: bytes) -> None:
        content = json.loads(body)["content"]
        good = content.startswith("---\n") and "\n---\n" in content
        self._reply(200 if good else 400, {"errors": [], "warnings": []})

    def create(self, body: bytes) -> None:
        asked = json.loads(body)
        name, kind = f"{asked['organization']}/{asked['name']}", asked.get("type") or "model"
        if (kind, name) in self.hub.repos:
            return self._refuse(409, "", "You already created this repo")
        self.hub.repos[kind, name] = Repo(asked.get("visibility") == "private")
        prefix = "" if kind == "model" else f"{kind}s/"
        return self._reply(200, {"url": f"{self.hub.url}/{prefix}{name}"})

    def _repo(self, kind: str, name: str) -> Repo | None:
        repo = self.hub.repos.get((kind.removesuffix("s/").removesuffix("s") or "model", name))
        if repo is None:
            self._refuse(404, "RepoNotFound", "Repository not found")
        return repo

    def info(self, _: bytes, kind: str, name: str, revision: str = "") -> None:
        if repo := self._repo(kind, name):
            files = [{"rfilename": path} for path in sorted(repo.files)]
            known = {"id": name, "private": repo.private, "sha": _sha(repo), "siblings": files}
            self._reply(200, {**known, "tags": [], "downloads": 0, "likes": 0})

    def tree(self, _: bytes, kind: str, name: str) -> None:
        if repo := self._repo(kind, name):
            files = [
                {"type": "file", "path": path, "size": len(data), "oid": _blob_id(data, path)}
                for path, data in sorted(repo.files.items())
            ]
            self._reply(200, files)

    def preupload(self, body: bytes, kind: str, name: str) -> None:
        if repo := self._repo(kind, name):
            files = [
                {
                    "path": one["path"],
                    "uploadMode": "lfs" if one["path"].endswith(LARGE) else "regular",
                    "shouldIgnore": False,
                    "oid": _blob_id(repo.files.get(one["path"]), one["path"]),
                }
                for one in json.loads(body)["files"]
            ]
            self._reply(200, {"files": files})

    def batch(self, body: bytes, kind: str, name: str) -> None:
        if self._repo(kind or "", name):
            objects = []
            for one in json.loads(body)["objects"]:
                known = one["oid"] in self.hub.blobs
                put = {"upload": {"href": f"{self.hub.url}/lfs/{one['oid']}"}}
                objects.append({**one, **({} if known else {"actions": put})})
            self._reply(200, {"transfer": "basic", "objects": objects})

    def commit(self, body: bytes, kind: str, name: str) -> None:
        if repo := self._repo(kind, name):
            for line in body.splitlines():
                item = json.loads(line)
                value = item["value"]
                if item["key"] == "file":
                    repo.files[value["path"]] = base64.b64decode(value["content"])
                elif item["key"] == "lfsFile":
                    repo.files[value["path"]] = self.hub.blobs[value["oid"]]
            repo.commits += 1
            self._reply(200, {"commitUrl": f"{self.hub.url}/{name}/commit/{_sha(repo)}",
                              "commitOid": _sha(repo), "hookOutput": ""})  # fmt: skip

    def resolve(self, _: bytes, kind: str, name: str, file: str) -> None:
        if repo := self._repo(kind or "", name):
            if file not in repo.files:
                return self._refuse(404, "EntryNotFound", "Entry not found")
            data = repo.files[file]
            etag = f'"{hashlib.sha256(data).hexdigest()}"'
            self._reply(200, data, {"ETag": etag, "X-Repo-Commit": _sha(repo)})
        return None


def _sha(repo: Repo) -> str:
    return f"{repo.commits:040x}"


def _blob_id(data: bytes | None, path: str) -> str | None:
    """How the Hub tells a file: git's id of its content, or SHA-256 where it is a large one."""
    if data is None:
        return None
    if path.endswith(LARGE):
        return hashlib.sha256(data).hexdigest()
    return hashlib.sha1(f"blob {len(data)}\0".encode() + data).hexdigest()


_KIND, _NAME = "(?P<kind>models|datasets)", "(?P<name>[^/]+/[^/]+?)"
_ROUTES = (
    ("/api/validate-yaml", _Handler.validate),
    ("/api/repos/create", _Handler.create),
    (f"/api/{_KIND}/{_NAME}(?:/revision/(?P<revision>[^/]+))?", _Handler.info),
    (f"/api/{_KIND}/{_NAME}/tree/[^/]+", _Handler.tree),
    (f"/api/{_KIND}/{_NAME}/preupload/main", _Handler.preupload),
    (f"/api/{_KIND}/{_NAME}/commit/main", _Handler.commit),
    (f"/(?P<kind>datasets/)?{_NAME}\\.git/info/lfs/objects/batch", _Handler.batch),
    (f"/(?P<kind>datasets/)?{_NAME}/resolve/[^/]+/(?P<file>.+)", _Handler.resolve),
)


@contextmanager
def serving() -> Iterator[Hub]:
    hub = Hub()
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
