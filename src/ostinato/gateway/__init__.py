"""The door for clients. OpenAI Chat Completions requests and feedback come in over HTTP; answers go out, and every
turn's exact tokens, every session and every report go to the ledger before they are acknowledged. The gateway alone
turns live messages into ids, chooses the slot of the engine by the person's arm, and mints response ids.
May import store, render, weights, loopback and records. No torch.
"""

from ostinato.gateway.app import build_app
from ostinato.gateway.arms import MODELS
from ostinato.gateway.config import GatewayConfig
from ostinato.gateway.serve import run_gateway

__all__ = ["MODELS", "GatewayConfig", "build_app", "run_gateway"]
