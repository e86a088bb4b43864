"""The commands for a person's own repository: leave an edit to be followed, and follow what was left."""

import asyncio
import signal
import sys
import time
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

Repository = Annotated[Path, Parameter(help="A folder in a git repository. Default: the current one.")]


def watch(
    repo: Repository = Path(),
    /,
    *,
    gateway: str = "http://127.0.0.1:8080",
    key: Annotated[str, Parameter(env_var="OSTINATO_KEY")] = "",
) -> None:
    """Follow proposed edits in a repository, and report to the gateway what of them is still there.

    Args:
        gateway: its URL. While it cannot be reached, reports wait in the repository's git folder.
        key: an API key with the scope "feedback".
    """
    asyncio.run(_watch(repo, gateway, key))


async def _watch(repo: Path, gateway: str, key: str) -> None:
    from ostinato.feedback import Checkout, FeedbackSender, Watcher, watch_folder

    with Checkout(repo) as checkout:
        root, queue = checkout.root, watch_folder(checkout) / "queue"
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with FeedbackSender(gateway, queue, key=key) as sender:
        watcher = Watcher(root, sender)
        sys.stdout.write(f"Watching {root}: {watcher.open} edits are followed. Reports go to {gateway}.\n")
        sys.stdout.flush()
        await watcher.run(stop)
        counts, sent = watcher.counts, sender.counts
        sys.stdout.write(
            f"Stopped. Edits taken in: {counts.taken}, refused: {counts.refused}; reports: {counts.reports}, horizons"
            f" missed: {counts.missed}; delivered: {sent.delivered}, unknown to the gateway: {sent.unknown}, refused"
            f" by it: {sent.refused}, waiting: {sender.pending}.\n"
        )


def proposed(response: str, repo: Repository = Path(), /, *, since: str = "HEAD") -> None:
    """Leave what the working tree has and a commit has not as the edit of RESPONSE, for `ostinato watch` to follow.

    Args:
        response: the id of the answer that brought the edit, as the gateway gave it.
        since: the commit before the edit.
    """
    from ostinato.feedback import Checkout, edit_since, leave_edit

    with Checkout(repo) as checkout:
        edit = edit_since(checkout, response, since, time.time())
        leave_edit(checkout, edit)
        names = ", ".join(sorted(edit.files))
        sys.stdout.write(f"{edit.edit_id}: {names}. It is followed while this runs: ostinato watch {checkout.root}\n")
