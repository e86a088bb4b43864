"""The harness: the tools and the loop. A request, a workspace and a model reached by URL come in; edits in the
workspace, a reply and counts go out. The same code serves people, training and evaluation.
May import records, render (tool-call formats), search, feedback and envs.client.
"""

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

__all__ = [
    "OUTPUT_LIMIT",
    "TOOLS",
    "EditOutcome",
    "apply_edit",
    "invalid_reason",
    "invalid_reply",
    "missing_file",
    "test_reply",
]
