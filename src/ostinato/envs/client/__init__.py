"""The client of the environment server. Texts of files, commands and patterns come in; results of commands, texts and
changes go out, and every failure is one of the house's errors (`SandboxDiedError` when the workspace is gone). A room
of its own below `envs`: it may import records.
"""

from ostinato.envs.client.http import EnvClient, Sandbox
from ostinato.envs.client.wire import (
    EXEC_TIMEOUT,
    BaseReply,
    BaseRequest,
    Changes,
    Environment,
    EnvStats,
    ErrorBody,
    ErrorReply,
    ExecRequest,
    ReadRequest,
    SandboxDiedError,
    SearchRequest,
    TextReply,
    Workspace,
    WriteRequest,
)

__all__ = [
    "EXEC_TIMEOUT",
    "BaseReply",
    "BaseRequest",
    "Changes",
    "EnvClient",
    "EnvStats",
    "Environment",
    "ErrorBody",
    "ErrorReply",
    "ExecRequest",
    "ReadRequest",
    "Sandbox",
    "SandboxDiedError",
    "SearchRequest",
    "TextReply",
    "Workspace",
    "WriteRequest",
]
