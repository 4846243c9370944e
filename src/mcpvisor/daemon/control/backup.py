"""Owns the route that gives out a copy of the state: to those only who may read the state file itself."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncGenerator
from contextlib import closing
from typing import BinaryIO, Final

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

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
        size = os.fstat(file.fileno()).st_size
        headers = {"Content-Length": str(size), "Cache-Control": "no-store"}
        return StreamingResponse(_pieces(file), media_type="application/vnd.sqlite3", headers=headers)


async def _pieces(file: BinaryIO) -> AsyncGenerator[bytes]:
    with closing(file):
        while piece := await anyio.to_thread.run_sync(file.read, _PIECE):
            yield piece
