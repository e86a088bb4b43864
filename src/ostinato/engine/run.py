"""The engine as a process of its own."""

import logging
import socket
import sys
from pathlib import Path

import msgspec
import torch
import uvicorn

from ostinato.engine.config import EngineConfig
from ostinato.engine.server import build_app
from ostinato.engine.service import Service
from ostinato.records import ConflictError
from ostinato.weights import WeightStore


def serve(weights_root: Path, port: int, slots: dict[str, str], config: EngineConfig) -> None:
    """See `run_engine`."""
    listener = _listen(port)
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    torch.set_num_threads(config.threads)
    service = Service(WeightStore(weights_root), config)
    try:
        for slot, version in slots.items():
            service.load(slot, version)
        ready = {"ready": True, "port": listener.getsockname()[1]}
        sys.stdout.write(msgspec.json.encode(ready).decode() + "\n")
        sys.stdout.flush()
        options = uvicorn.Config(
            build_app(service),
            log_level="warning",
            access_log=False,
            http="httptools",
            loop="uvloop",
            ws="none",
            lifespan="off",
            timeout_keep_alive=60,
            timeout_graceful_shutdown=2,
        )
        uvicorn.Server(options).run(sockets=[listener])
    except KeyboardInterrupt:
        pass  # the asked-for end; uvicorn has closed its connections
    finally:
        service.close()
        listener.close()


def _listen(port: int) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
    except OSError as error:
        listener.close()
        raise ConflictError(
            f"The engine cannot listen on 127.0.0.1:{port}: {error.strerror}.",
            hint="Give another port, or 0 for a free one.",
        ) from error
    listener.listen(1024)
    return listener
