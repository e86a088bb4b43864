"""The harness: the tools and the loop. A request, a workspace and a model reached by URL come in; edits in the
workspace, a reply and counts go out. The same code serves people, training and evaluation.
May import records, render (tool-call formats), search, feedback and envs.client.
"""

from ostinato.agent.chat import Chat, ChatClient, ChatReply, WireMessage, read_reply
from ostinato.agent.loop import AgentConfig, AgentRun, run_agent
from ostinato.agent.tools import (
    OUTPUT_LIMIT,
    TOOLS,
    EditOutcome,
    apply_edit,
    invalid_reason,
    invalid_reply,
    missing_file,
    test_reply,
)
from ostinato.agent.workspace import FilesWorkspace, SandboxWorkspace, Workspace, call_tool

__all__ = [
    "OUTPUT_LIMIT",
    "TOOLS",
    "AgentConfig",
    "AgentRun",
    "Chat",
    "ChatClient",
    "ChatReply",
    "EditOutcome",
    "FilesWorkspace",
    "SandboxWorkspace",
    "WireMessage",
    "Workspace",
    "apply_edit",
    "call_tool",
    "invalid_reason",
    "invalid_reply",
    "missing_file",
    "read_reply",
    "run_agent",
    "test_reply",
]
