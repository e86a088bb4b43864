"""How large an engine is."""

from msgspec import Struct


class EngineConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Sizes and habits of one engine process.

    Memory: a row holds the keys and values of one sequence, `max_len` x layers x 2 x key heads x head size x 4 bytes
    (1.5 MiB for the seed model, so 384 rows take 576 MiB, touched only as they are used)."""

    max_len: int = 768
    """Longest sequence in tokens, prompt and answer together; cut to the model's own limit."""
    rows: int = 384
    """Most sequences whose keys and values are kept, running or for re-use."""
    running: int = 48
    """Most sequences that decode at the same time on one slot's weights."""
    kv_bytes: int = 1 << 30
    """Most memory for keys and values, in bytes; rows and running shrink to fit a larger model."""
    prefill_tokens: int = 256
    """Most prompt tokens of one slot that go through the model in one step: bounds how long a step takes."""
    flush_s: float = 0.05
    """Seconds for which drawn tokens are gathered into one chunk after the first."""
    device: str = "cpu"
    """A torch device."""
    threads: int = 1
    """Threads of torch on a CPU."""
