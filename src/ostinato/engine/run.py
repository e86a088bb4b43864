"""The engine as a process of its own."""

import logging
import sys
from pathlib import Path

import torch

from ostinato import loopback
from ostinato.engine.config import EngineConfig
from ostinato.engine.server import build_app
from ostinato.engine.service import Service
from ostinato.weights import WeightStore


def serve(weights_root: Path, port: int, slots: dict[str, str], config: EngineConfig) -> None:
    """See `run_engine`."""
    listener = loopback.listen(port)
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    torch.set_num_threads(config.threads)
    service = Service(WeightStore(weights_root), config)
    try:
        for slot, version in slots.items():
            service.load(slot, version)
        loopback.serve(build_app(service), listener)
    except KeyboardInterrupt:
        pass  # the asked-for end; uvicorn has closed its connections
    finally:
        service.close()
        listener.close()
