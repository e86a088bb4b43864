"""The client of the environment server. Texts of files, commands and patterns come in; results of commands, texts and
changes go out, and every failure is one of the house's errors (`SandboxDiedError` when the workspace is gone). A room
of its own below `envs`: it may import records.
"""

from ostinato.envs.client.http import EnvClient, Sandbox
from ostinato.envs.client.wire import Changes, Environment, EnvStats, SandboxDiedError, Workspace

__all__ = ["Changes", "EnvClient", "EnvStats", "Environment", "Sandbox", "SandboxDiedError", "Workspace"]
