"""What can be set about the gateway."""

from msgspec import Struct


class GatewayConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of one gateway process."""

    port: int = 0
    """Where to listen on 127.0.0.1; 0 takes a free port."""
    max_body_bytes: int = 8 << 20
    """Larger request bodies are refused before they are read."""
    max_context: int = 0
    """Tokens that the engine's context holds; a conversation that does not fit is refused before it is recorded as a
    turn. 0 leaves it to the engine."""
    default_max_tokens: int = 256
    """How many tokens a reply may have where the request does not say."""
    live_sessions: int = 2048
    """Sessions whose token log is kept in memory; others are read back from the ledger when needed."""
    session_idle_s: float = 1800.0
    """A session found by message prefix is no longer looked for after so many seconds without a turn."""
    refresh_s: float = 0.5
    """How often the running experiment is read from the ledger."""
    flush_s: float = 0.5
    """How often counters are written to the ledger."""
    seal_s: float = 5.0
    """How often the traces of closed sessions are sealed."""
