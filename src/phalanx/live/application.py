"""The live page: runs side by side, one run as it goes on, and the browser of its duels.

Everything is read: no route writes. Ledgers are read in threads, so that a long reading never
keeps another page waiting, and each reading is of one moment of the run.
"""

from __future__ import annotations

import asyncio
import json
import time
import webbrowser
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phalanx.errors import MissingPackage
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.live import guarded
from phalanx.live.page import STATIC, index_page, run_page, side_by_side, state_line
from phalanx.live.watching import Runs, Shown, Watched, fault_line
from phalanx.report import headlines, words
from phalanx.report.duel_file import FOLDER
from phalanx.report.duel_texts import NoSuchId, details, holding
from phalanx.report.duels import KINDS
from phalanx.report.html import STYLE, PageSection

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

PORT = 8137
_EVERY = 2.0  # seconds between two looks at a run
_PATIENCE = 0.3  # seconds that a page waits for the first reading of a run
_STILL = 15.0  # seconds without news after which a line is sent to keep the connection
_MAX_WORDS = 200
_MAX_ID = 4000  # characters; longer ones are no ids
_READERS = 4  # threads that read whole runs, so that single duels never wait for a free one

_FILES = {
    "live.js": STATIC, "live.css": STATIC,
    **dict.fromkeys(("browser.js", "detail.js", "table.js", "text.js", "browser.css"), FOLDER),
    STYLE.name: STYLE.parent,
}  # fmt: skip
_TYPES = {".js": "text/javascript", ".css": "text/css"}


def serve(
    folders: Sequence[Path | str],
    *,
    host: str = "127.0.0.1",
    port: int = PORT,
    open_page: bool = False,
    say: Callable[[str], None] = print,
) -> None:
    """Serve the live page of one or several runs until Ctrl-C; see ``phalanx serve``.

    Raises ConfigError for folders that are files and addresses that cannot be had, MissingPackage
    without the extra ``serve``.
    """
    runs = Runs(folders)
    page = application(runs)
    for run in runs.all():
        if not run_ledger_path(run.folder).exists():
            say(f"There is no run in {run.folder} yet; it is shown as soon as there is one.")
    opened = webbrowser.open if open_page else None
    guarded.serve(page, host, port, say, name="The live page", ready=opened)


def application(runs: Runs, *, every: float = _EVERY) -> Starlette:
    """The page and what it asks for. ``every``: seconds between two looks at a run."""
    try:
        from starlette.applications import Starlette
        from starlette.routing import Route
    except ImportError:
        raise MissingPackage("starlette", "serve", "the live page") from None
    site = _Site(runs, every)
    return Starlette(
        routes=[
            Route("/", site.index),
            Route("/events", site.index_events),
            Route("/static/{name}", site.file),
            Route("/run/{key}", site.run),
            Route("/run/{key}/events", site.run_events),
            Route("/run/{key}/rows/{kind}", site.rows),
            Route("/run/{key}/detail/{kind}", site.detail),
            Route("/run/{key}/search/{kind}", site.search),
        ],
        lifespan=site.open_threads,
    )


class _Site:
    def __init__(self, runs: Runs, every: float) -> None:
        self._runs = runs
        self._every = every
        self._under_way: dict[Hashable, asyncio.Future[Any]] = {}

    @asynccontextmanager
    async def open_threads(self, _: Starlette) -> AsyncIterator[None]:
        with ThreadPoolExecutor(_READERS, "phalanx-reader") as self._readers:
            yield

    async def _once(self, what: Hashable, read: Callable[..., Any], *given: Any) -> Any:
        """What a long reading finds; whoever wants the same meanwhile waits for the same one, so
        that ten pages of a run read it once."""
        found = self._under_way.get(what)
        if found is None:
            loop = asyncio.get_running_loop()
            found = self._under_way[what] = loop.run_in_executor(self._readers, read, *given)
            found.add_done_callback(lambda _: self._under_way.pop(what))
        return await asyncio.shield(found)

    async def _shown(self, run: Watched, whole: bool) -> Shown:
        return await self._once((run.key, whole), lambda: run.read(whole=whole))

    async def _soon(self, run: Watched, *, whole: bool) -> Shown:
        """What is known of a run, after a short wait for its first reading."""
        known = run.latest(whole=whole)
        if known is not None:
            return known
        reading = asyncio.ensure_future(self._shown(run, whole))
        done, _ = await asyncio.wait([reading], timeout=_PATIENCE)
        return reading.result() if done else Shown()

    # ---- pages --------------------------------------------------------------------------------

    async def index(self, _: Request) -> Response:
        from starlette.responses import RedirectResponse

        runs = await asyncio.to_thread(self._runs.all)
        if len(runs) == 1:
            return RedirectResponse(f"/run/{runs[0].key}")
        shown = await asyncio.gather(*(self._soon(run, whole=False) for run in runs))
        return _page(index_page(list(zip(runs, shown, strict=True))))

    async def run(self, request: Request) -> Response:
        """Soon, with what is known; a run that takes long to read comes with the first event."""
        runs = await asyncio.to_thread(self._runs.all)
        run = _among(runs, request)
        if run is None:
            return _refused(404, "there is no such run here; it may have been moved: see /")
        return _page(run_page(run, await self._soon(run, whole=True), alone=len(runs) == 1))

    async def file(self, request: Request) -> Response:
        from starlette.responses import FileResponse

        name = request.path_params["name"]
        if name not in _FILES:
            return _refused(404, f"there is no file {name[:80]!r}")
        path = _FILES[name] / name
        headers = {"cache-control": "no-cache"}
        return FileResponse(path, media_type=_TYPES[path.suffix], headers=headers)

    # ---- events -------------------------------------------------------------------------------

    async def run_events(self, request: Request) -> Response:
        run = _among(await asyncio.to_thread(self._runs.all), request)
        if run is None:
            return _refused(404, "there is no such run here")

        async def look() -> dict[str, Any]:
            shown = await self._shown(run, True)
            facts = shown.facts
            return {
                "heading": words.run_name(facts) if facts else run.name,
                "subtitle": headlines.subtitle(facts) if facts else "",
                "state": state_line(shown),
                "going": _going(shown),
                "sections": shown.sections,
                "kinds": () if shown.trouble else shown.kinds,
                "rows": shown.rows,
            }

        return self._stream(request, look)

    async def index_events(self, request: Request) -> Response:
        async def look() -> dict[str, Any]:
            runs = await asyncio.to_thread(self._runs.all)
            seen = await asyncio.gather(*(self._shown(run, False) for run in runs))
            shown = list(zip(runs, seen, strict=True))
            return {
                "heading": words.plural(len(runs), "run"),
                "subtitle": "",
                "state": "",
                "going": any(_going(one) for _, one in shown),
                "sections": (side_by_side(shown),),
                "kinds": (),
            }

        return self._stream(request, look)

    def _stream(self, request: Request, look: Callable[[], Awaitable[dict[str, Any]]]) -> Response:
        from starlette.responses import StreamingResponse

        closing = request.scope.get(guarded.CLOSING)

        async def news() -> AsyncIterator[str]:
            sent: dict[str, str] = {}
            last, quiet = "", time.monotonic()
            while closing is None or not closing.is_set():
                try:
                    text, sent = _news(await look(), sent)
                except Exception as error:  # said on the page, which goes on
                    text = json.dumps({"trouble": f"It cannot be shown: {fault_line(error)}"})
                if text != last:
                    yield f"event: shown\ndata: {text}\n\n"
                    last, quiet = text, time.monotonic()
                elif time.monotonic() - quiet > _STILL:
                    yield ": still here\n\n"
                    quiet = time.monotonic()
                due = time.monotonic() + self._every
                while time.monotonic() < due and not (closing is not None and closing.is_set()):
                    await asyncio.sleep(min(0.25, self._every))

        headers = {"cache-control": "no-store"}
        return StreamingResponse(news(), media_type="text/event-stream", headers=headers)

    # ---- the browser's data -------------------------------------------------------------------

    async def rows(self, request: Request) -> Response:
        """The browser keeps them, and asks with their stamp whether there are others."""
        from starlette.responses import Response

        async def read(run: Watched, kind: Any) -> Response:
            stamp, body = await self._once((run.key, "rows", kind), run.rows, kind)
            headers = {"cache-control": "no-cache", "etag": f'"{stamp}"'}
            if request.headers.get("if-none-match") == headers["etag"]:
                return Response(status_code=304, headers=headers)
            headers["content-encoding"] = "gzip"
            return Response(body, media_type="application/json", headers=headers)

        return await self._of_kind(request, read)

    async def detail(self, request: Request) -> Response:
        wanted = request.query_params.get("id", "")
        if not 0 < len(wanted) <= _MAX_ID:
            return _refused(400, f"expected an id of 1 to {_MAX_ID:,} characters")

        def find(folder: Path, kind: Any) -> Response:
            with Ledger(run_ledger_path(folder)) as ledger:
                try:
                    found = details(ledger, kind, [wanted])
                except NoSuchId:
                    found = {}
            if wanted not in found:
                return _refused(404, f"the run has none with the id {wanted[:200]!r}")
            return _json(found[wanted])

        async def read(run: Watched, kind: Any) -> Response:
            return await asyncio.to_thread(find, run.folder, kind)

        return await self._of_kind(request, read)

    async def search(self, request: Request) -> Response:
        wanted = request.query_params.get("words", "")
        if not wanted or len(wanted) > _MAX_WORDS:
            return _refused(400, f"expected 1 to {_MAX_WORDS} characters to search for")

        def find(folder: Path, kind: Any) -> list[str]:
            with Ledger(run_ledger_path(folder)) as ledger:
                return sorted(set(holding(ledger, kind, wanted)))

        async def read(run: Watched, kind: Any) -> Response:
            what = (run.key, "search", kind, wanted)
            return _json(await self._once(what, find, run.folder, kind))

        return await self._of_kind(request, read)

    async def _of_kind(
        self, request: Request, read: Callable[[Watched, Any], Awaitable[Response]]
    ) -> Response:
        run = _among(await asyncio.to_thread(self._runs.all), request)
        kind = request.path_params["kind"]
        if run is None or kind not in KINDS:
            return _refused(404, f"there is no such run here, or it has no {kind[:80]!r}")
        try:
            return await read(run, kind)
        except Exception as error:  # the page shows it where the rows would be
            return _refused(503, f"the run cannot be read: {fault_line(error)}")


def _going(shown: Shown) -> bool:
    state = shown.facts.progress if shown.facts else None
    return bool(
        state and not (state.finished or state.stop_reason or state.last_error or shown.trouble)
    )


def _news(found: dict[str, Any], sent: dict[str, str]) -> tuple[str, dict[str, str]]:
    """(what to send, all sections as they are now): only those that have changed are sent."""
    parts: Sequence[PageSection] = found.pop("sections")
    now = {part.id: str(part.html) for part in parts}
    found["contents"] = [[part.id, part.title] for part in parts]
    found["changed"] = {id_: html for id_, html in now.items() if sent.get(id_) != html}
    return json.dumps(found, ensure_ascii=True), now


def _among(runs: Sequence[Watched], request: Request) -> Watched | None:
    return next((run for run in runs if run.key == request.path_params["key"]), None)


def _page(html: str) -> Response:
    from starlette.responses import Response

    # Halves of surrogate pairs that a model wrote have no bytes.
    body = html.encode("utf-8", "replace")
    return Response(body, media_type="text/html", headers={"cache-control": "no-store"})


def _json(value: Any) -> Response:
    from starlette.responses import Response

    body = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    headers = {"cache-control": "no-store"}
    return Response(body, media_type="application/json", headers=headers)


def _refused(status: int, sentence: str) -> Response:
    from starlette.responses import PlainTextResponse

    return PlainTextResponse(f"{sentence}\n".encode("utf-8", "replace"), status)
