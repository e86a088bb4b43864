"""Answering HTTP on a port."""

import socket
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import msgspec


def serve(
    app: Callable[..., Awaitable[Any]],
    listener: socket.socket,
    *,
    lifespan: Literal["on", "off"] = "off",
    grace_s: int = 2,
    keep_alive_s: int = 75,
) -> None:
    """Answer requests to the ASGI application `app` on `listener` until SIGINT or SIGTERM, then close it.

    Once requests are answered one JSON line `{"ready": true, "url": ..., "port": ...}` goes to standard output. Running
    requests have `grace_s` seconds at the end; a connection may be idle for `keep_alive_s`. `lifespan` says whether the
    application wants to hear of its start and end. Raises `KeyboardInterrupt` after a SIGINT."""
    import uvicorn

    port = listener.getsockname()[1]

    class Announced(uvicorn.Server):
        """Says that it is ready once it is."""

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started:
                told = {"ready": True, "url": f"http://127.0.0.1:{port}", "port": port}
                sys.stdout.write(msgspec.json.encode(told).decode() + "\n")
                sys.stdout.flush()

    settings = uvicorn.Config(
        app,
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan=lifespan,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_keep_alive=keep_alive_s,
        timeout_graceful_shutdown=grace_s,
    )
    try:
        Announced(settings).run(sockets=[listener])
    finally:
        listener.close()
