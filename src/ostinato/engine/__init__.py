"""Generation, room of torch. Token ids and sampling settings come in, over HTTP or by call; drawn ids, natural
log-probabilities, expert choices and the version of every token go out. Weights are fetched from the weights folder
into slots and swapped in flight. May import records, loopback, weights, render (does the tokenizer fit?) and
model. The client, the scripted engine and this door need no torch; `run_engine` imports it when called.
"""

from pathlib import Path

from ostinato.engine.client import EngineClient
from ostinato.engine.config import EngineConfig
from ostinato.engine.joining import join_chunks
from ostinato.engine.scripted import ScriptedEngine
from ostinato.engine.slots import SLOTS, Loaded

__all__ = ["SLOTS", "EngineClient", "EngineConfig", "Loaded", "ScriptedEngine", "join_chunks", "run_engine"]


def run_engine(
    weights_root: Path, port: int, slots: dict[str, str], threads: int = 1, device: str = "cpu", max_len: int = 768
) -> None:
    """Serve on 127.0.0.1:`port` (0 takes a free one) until SIGTERM or SIGINT, with `slots` (slot to version) loaded.
    Says so in a line of JSON when it is ready, as `ostinato.loopback.serve` does. Raises `ConflictError` when the port
    is taken and what loading raises."""
    from ostinato.engine.run import serve

    serve(weights_root, port, slots, EngineConfig(threads=threads, device=device, max_len=max_len))
