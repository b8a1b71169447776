"""The page for the operator at /ui: static files, which hold no data. What they show comes from /admin.

The policy of their responses lets the page load and call nothing but this gateway, and run no script but its files.
"""

import mimetypes
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path

import anyio.to_thread
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from dragoman_server.http.auth import UI_PATH
from dragoman_server.wire.headers import BROWSER_HEADERS, HeaderList

UI_FOLDER = Path(__file__).parents[2] / "ui"

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
_HEADERS: HeaderList = [
    ("content-security-policy", CONTENT_SECURITY_POLICY),
    ("cross-origin-opener-policy", "same-origin"),
    ("referrer-policy", "no-referrer"),
    # A file is asked for again, and not sent again: another version of the gateway has other files.
    ("cache-control", "no-cache"),
    *BROWSER_HEADERS,
]
_INDEX = "index.html"


def page_routes() -> Sequence[BaseRoute]:
    """Return the routes of the page."""

    async def redirect(request: Request) -> Response:
        # Relative, because the page's own URLs are, and the gateway may be mounted anywhere.
        return RedirectResponse(f"{UI_PATH[1:]}/", 308, headers=dict(_HEADERS))

    async def file(request: Request) -> Response:
        files = await anyio.to_thread.run_sync(page_files)
        found = files.get(request.path_params["name"] or _INDEX)
        if found is None:
            raise HTTPException(404, f"there is no such file of the page; it is at {UI_PATH}/")
        data, kind, etag = found
        headers = {**dict(_HEADERS), "etag": etag}
        if request.headers.get("if-none-match") == etag:
            return Response(status_code=304, headers=headers)
        return Response(data, media_type=kind, headers=headers)

    return [
        Route(UI_PATH, redirect, methods=["GET"]),
        Route(f"{UI_PATH}/{{name:path}}", file, methods=["GET"]),
    ]


@cache
def page_files() -> dict[str, tuple[bytes, str, str]]:
    """Return the content, the type and the tag of each file by its path."""
    files = {}
    for path in sorted(UI_FOLDER.rglob("*")):
        if path.is_file():
            data = path.read_bytes()
            kind = "text/javascript" if path.suffix in (".js", ".mjs") else mimetypes.guess_type(path)[0]
            name = path.relative_to(UI_FOLDER).as_posix()
            files[name] = data, kind or "text/plain", f'"{sha256(data).hexdigest()[:32]}"'
    return files
