"""Environments: isolated workspaces. Bases (file trees) and fork requests come in; results of commands, changes of
files and counts go out, over HTTP. May import records, loopback, search and the sub-room envs.client (a room of its
own: records only).
"""

from ostinato.envs.bases import BaseStore, import_base
from ostinato.envs.journal import SandboxJournal
from ostinato.envs.limits import Limits
from ostinato.envs.probe import Isolation, explain, probe_isolation
from ostinato.envs.run import run_envs

__all__ = [
    "BaseStore",
    "Isolation",
    "Limits",
    "SandboxJournal",
    "explain",
    "import_base",
    "probe_isolation",
    "run_envs",
]
