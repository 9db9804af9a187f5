"""The live page: runs side by side, one run as it goes on, and the browser of its duels.

Everything is read: no route writes. Ledgers are read in threads, so that a long reading never
keeps another page waiting, and each reading is of one moment of the run.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
import webbrowser
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phalanx.errors import MissingPackage, PhalanxError
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.live import guarded
from phalanx.live.page import STATIC, index_page, run_page, side_by_side, state_line
from phalanx.live.watching import Runs, Shown, Watched
from phalanx.report import headlines, words
from phalanx.report.duel_file import FOLDER
from phalanx.report.duel_texts import details, holding
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
        ]
    )


class _Site:
    def __init__(self, runs: Runs, every: float) -> None:
        self._runs = runs
        self._every = every

    # ---- pages --------------------------------------------------------------------------------

    async def index(self, _: Request) -> Response:
        from starlette.responses import RedirectResponse

        runs = await asyncio.to_thread(self._runs.all)
        if len(runs) == 1:
            return RedirectResponse(f"/run/{runs[0].key}")
        shown = await asyncio.gather(*(_soon(run, whole=False) for run in runs))
        return _page(index_page(list(zip(runs, shown, strict=True))))

    async def run(self, request: Request) -> Response:
        """Soon, with what is known; a run that takes long to read comes with the first event."""
        runs = await asyncio.to_thread(self._runs.all)
        run = _among(runs, request)
        if run is None:
            return _refused(404, "there is no such run here; it may have been moved: see /")
        return _page(run_page(run, await _soon(run, whole=True), alone=len(runs) == 1))

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

        def look() -> dict[str, Any]:
            shown = run.read()
            facts = shown.facts
            return {
                "heading": words.run_name(facts) if facts else run.name,
                "subtitle": headlines.subtitle(facts) if facts else "",
                "state": state_line(shown),
                "going": _going(shown),
                "sections": shown.sections,
                "kinds": shown.kinds,
            }

        return self._stream(request, look)

    async def index_events(self, request: Request) -> Response:
        def look() -> dict[str, Any]:
            runs = self._runs.all()
            shown = [(run, run.read(whole=False)) for run in runs]
            return {
                "heading": words.plural(len(runs), "run"),
                "subtitle": "",
                "state": "",
                "going": any(_going(one) for _, one in shown),
                "sections": (side_by_side(shown),),
                "kinds": (),
            }

        return self._stream(request, look)

    def _stream(self, request: Request, look: Callable[[], dict[str, Any]]) -> Response:
        from starlette.responses import StreamingResponse

        closing = request.scope.get(guarded.CLOSING)

        async def news() -> AsyncIterator[str]:
            sent: dict[str, str] = {}
            last, quiet = "", time.monotonic()
            while closing is None or not closing.is_set():
                text, sent = _news(await asyncio.to_thread(look), sent)
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
        from starlette.responses import Response

        def read(run: Watched, kind: Any) -> Response:
            headers = {"content-encoding": "gzip", "cache-control": "no-store"}
            return Response(run.rows(kind), media_type="application/json", headers=headers)

        return await self._of_kind(request, read)

    async def detail(self, request: Request) -> Response:
        wanted = request.query_params.get("id", "")

        def read(run: Watched, kind: Any) -> Response:
            with Ledger(run_ledger_path(run.folder)) as ledger:
                try:
                    found = details(ledger, kind, [wanted])
                except ValueError:  # an id that is none: of answers it is JSON
                    found = {}
            if wanted not in found:
                return _refused(404, f"the run has none with the id {wanted[:200]!r}")
            return _json(found[wanted])

        return await self._of_kind(request, read)

    async def search(self, request: Request) -> Response:
        wanted = request.query_params.get("words", "")
        if not wanted or len(wanted) > _MAX_WORDS:
            return _refused(400, f"expected 1 to {_MAX_WORDS} characters to search for")

        def read(run: Watched, kind: Any) -> Response:
            with Ledger(run_ledger_path(run.folder)) as ledger:
                return _json(sorted(set(holding(ledger, kind, wanted))))

        return await self._of_kind(request, read)

    async def _of_kind(
        self, request: Request, read: Callable[[Watched, Any], Response]
    ) -> Response:
        run = _among(await asyncio.to_thread(self._runs.all), request)
        kind = request.path_params["kind"]
        if run is None or kind not in KINDS:
            return _refused(404, f"there is no such run here, or it has no {kind[:80]!r}")
        try:
            return await asyncio.to_thread(read, run, kind)
        except (PhalanxError, sqlite3.Error, OSError) as error:
            return _refused(503, f"the run cannot be read: {error}")


async def _soon(run: Watched, *, whole: bool) -> Shown:
    """What is known of a run, after a short wait for its first reading."""
    known = run.latest(whole=whole)
    if known is not None:
        return known
    reading = asyncio.ensure_future(asyncio.to_thread(run.read, whole=whole))
    done, _ = await asyncio.wait([reading], timeout=_PATIENCE)
    return reading.result() if done else Shown()


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
