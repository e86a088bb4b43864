"""A workspace in memory, with the agent's tools and their very texts; and the judge of what was done in it."""

import re
from collections.abc import Mapping

from ostinato.agent import TOOLS, apply_edit, invalid_reason, invalid_reply, missing_file, test_reply
from ostinato.records import Task, ToolCall
from ostinato.search import search_files
from ostinato.tinyworld.runner import run_tests

__all__ = ["TOOLS", "MemoryWorkspace", "edited", "judge", "solved"]


class MemoryWorkspace:
    """A repository as a dictionary. `files` is the state (path -> text); `invalid_calls` counts refused calls."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self.files: dict[str, str] = dict(files)
        self.invalid_calls = 0

    def call(self, call: ToolCall) -> str:
        """Carry out one tool call and return the text that the model sees. Never raises for a bad call."""
        reason = invalid_reason(call)
        if reason:
            self.invalid_calls += 1
            return invalid_reply(reason)
        if call.name == "search":
            return search_files(self.files.items(), call.arguments["pattern"])
        if call.name == "run_tests":
            return test_reply(run_tests(self.files))
        path = call.arguments["path"]
        if path not in self.files:
            return missing_file(path)
        if call.name == "read_file":
            return self.files[path]
        outcome = apply_edit(self.files[path], call.arguments["old"], call.arguments["new"])
        if outcome.text is not None:
            self.files[path] = outcome.text
        return outcome.reply


def edited(task: Task, files: Mapping[str, str]) -> bool:
    """Whether `files` differ from the task's start state."""
    return dict(files) != task.files


def solved(task: Task, files: Mapping[str, str]) -> bool:
    """Whether the hidden tests pass over `files`; for a task that wants no edit, whether nothing was changed."""
    if not task.wants_edit:
        return not edited(task, files)
    return run_tests({**files, **task.tests}) == "passed\n"


def judge(task: Task, files: Mapping[str, str], reply: str) -> bool:
    """Whether the task is done: `solved`, and where an answer is wanted, the reply holds it as whole words."""
    if not solved(task, files):
        return False
    return not task.answer or re.search(rf"(?<!\w){re.escape(task.answer)}(?!\w)", reply) is not None
