"""Owns the route that gives out a copy of the state: to those only who may read the state file itself."""

from __future__ import annotations

import logging
import os
from contextlib import closing
from typing import BinaryIO, Final

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from mcpvisor.daemon.control.answers import ApiError
from mcpvisor.daemon.control.keeping import Keeping, NoCopy
from mcpvisor.daemon.control.requests import caller

_log = logging.getLogger(__name__)

_PIECE: Final = 256 * 1024


class Backup:
    """The route of `mcpvisor backup`."""

    def __init__(self, keeping: Keeping) -> None:
        self._keeping = keeping

    async def backup(self, request: Request) -> Response:
        """GET /v1/backup: the state file, whole and consistent; it holds tokens."""
        who = caller(request).name
        if who not in ("uid:0", f"uid:{os.geteuid()}"):
            raise ApiError(
                "PERMISSION_DENIED",
                "NOT_THE_OWNER",
                f"the state holds credentials: {who} is neither root nor the daemon's user",
            )
        try:
            file = await self._keeping.copy()
        except NoCopy as error:
            raise ApiError("FAILED_PRECONDITION", "NO_COPY", str(error)) from error
        _log.info("%s takes a copy of the state", who, extra={"audit": True, "peer": request.client})
        return FileResponse(file)


class FileResponse(Response):
    """An open file as an answer, its length told beforehand; the file is closed with it."""

    media_type = "application/vnd.sqlite3"

    def __init__(self, file: BinaryIO) -> None:
        size = os.fstat(file.fileno()).st_size
        super().__init__(headers={"Content-Length": str(size), "Cache-Control": "no-store"})
        self._file = file

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 # ASGI's signature
        with closing(self._file):
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            while piece := await anyio.to_thread.run_sync(self._file.read, _PIECE):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
