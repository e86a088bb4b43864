"""The engine as a process of its own."""

import logging
import sys
from pathlib import Path

import msgspec
import torch
import uvicorn

from ostinato.engine.config import EngineConfig
from ostinato.engine.server import build_app
from ostinato.engine.service import Service
from ostinato.loopback import listen
from ostinato.weights import WeightStore


def serve(weights_root: Path, port: int, slots: dict[str, str], config: EngineConfig) -> None:
    """See `run_engine`."""
    listener = listen(port)
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
