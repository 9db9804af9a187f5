"""The page of `phalanx label --page`: one person, one sample, this machine.

The browser is shown what a terminal would show: an instruction and two responses, no names. What
it says goes into the ledger at once. All handlers run in the thread that has the ledger open.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phalanx.errors import MissingPackage
from phalanx.labelling.sample import CHOICES, Labelling

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request

STATIC = Path(__file__).parent / "static"
MAX_BODY = 10_000
"""Bytes of the longest answer that a page sends."""


def serve(at_work: Labelling, *, port: int = 0, say: Callable[[str], None] = print) -> None:
    """Serve the page until Ctrl-C. Raises MissingPackage without the extra ``serve``."""
    from phalanx.live import guarded

    token = secrets.token_urlsafe(32)
    guarded.serve(
        application(at_work, token), port=port, say=say, name="The labelling page", token=token
    )


def application(at_work: Labelling, token: str) -> Starlette:
    """The page, its files, what it shows and what it says; the guard is around it."""
    try:
        from starlette.applications import Starlette
        from starlette.responses import HTMLResponse, JSONResponse
        from starlette.routing import Mount, Route
        from starlette.staticfiles import StaticFiles
    except ImportError:
        raise MissingPackage("starlette", "serve", "labelling on a page") from None
    html = (STATIC / "label.html").read_text(encoding="utf-8").replace("{{token}}", token)
    fresh = {"cache-control": "no-store"}

    async def page(_: Request) -> HTMLResponse:
        return HTMLResponse(html, headers=fresh)

    async def state(_: Request) -> JSONResponse:
        return JSONResponse(_state(at_work), headers=fresh)

    async def say(request: Request) -> JSONResponse:
        status, why = _said(at_work, await _body(request))
        return JSONResponse({**_state(at_work), "why": why}, status, headers=fresh)

    return Starlette(
        routes=[
            Route("/", page),
            Route("/state", state),
            Route("/say", say, methods=["POST"]),
            Mount("/static", StaticFiles(directory=STATIC)),
        ]
    )


async def _body(request: Request) -> Any:
    """What the page sent; None for what is too long or no JSON."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > MAX_BODY:
            return None
    try:
        return json.loads(body)
    except ValueError:
        return None


def _said(at_work: Labelling, body: Any) -> tuple[int, str]:
    """Do what the page says; (status, why not). A page that is behind changes nothing."""
    if not isinstance(body, dict) or body.get("choice") not in (*CHOICES, "back"):
        return 400, f"expected a choice: {', '.join(CHOICES)} or back"
    if body.get("place") != at_work.at + 1:
        return 409, "another window went on; this is where it is now"
    if body["choice"] == "back":
        return (200, "") if at_work.back() else (409, "this is the first one")
    if at_work.done:
        return 409, "all are labelled"
    at_work.say(body["choice"])
    return 200, ""


def _state(at_work: Labelling) -> dict[str, Any]:
    """What the page shows. The duel's id stays here: exports have it beside the names."""
    known = {
        "person": at_work.person,
        "place": at_work.at + 1,
        "total": len(at_work.duels),
        "num_done": at_work.num_done,
        "done": at_work.done,
    }
    if at_work.done:
        return known
    shown = at_work.shown()
    return {
        **known,
        "instruction": shown.instruction,
        "first": shown.first,
        "second": shown.second,
        "said": shown.said,
    }
