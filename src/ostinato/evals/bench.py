"""The bench: tasks made from what held-out persons committed in their own sessions.

A commit becomes a task only if its reference passes the tests and the untouched start state fails them (the acceptance
rule of trajectory-to-environment converters), so a bench task can tell a good agent from one that does nothing.
"""

from msgspec import Struct

from ostinato.envs.client import EnvClient
from ostinato.episodes import passes
from ostinato.records import Commit, MissingError, Task, in_held_out_group
from ostinato.store import Ledger


class Proposal(Struct, frozen=True):
    """A commit that may become a bench task."""

    session_id: str
    commit: Commit

    def task(self) -> Task:
        """The task: the request in the start state, judged by the person's own tests."""
        return Task(
            task_id=f"bench-{self.session_id}",
            request=self.commit.request,
            base=self.commit.base,
            tests=self.commit.tests,
            test_command=self.commit.test_command,
            reference=self.commit.files,
        )


def proposals(ledger: Ledger, most: int) -> list[Proposal]:
    """Commits of held-out persons that were not proposed yet, oldest first, at most `most`."""
    known = {row.source_session for row in ledger.bench_tasks()}
    found: list[Proposal] = []
    for session in ledger.sessions("live"):
        if len(found) >= most:
            break
        if session.closed_at is None or session.session_id in known or not in_held_out_group(session.person):
            continue
        commits = [event.payload for event in ledger.feedback(session.session_id) if isinstance(event.payload, Commit)]
        if commits:
            found.append(Proposal(session.session_id, commits[-1]))
    return found


async def refusal(commit: Commit, envs: EnvClient) -> str:
    """Why a commit makes no bench task; "" if it makes one."""
    if not commit.tests:
        return "the commit has no tests"
    try:
        if await passes(envs, commit.base, {}, commit.tests, commit.test_command):
            return "the start state passes its tests already"
        if not await passes(envs, commit.base, dict(commit.files), commit.tests, commit.test_command):
            return "the reference fails its tests"
    except MissingError as error:
        return f"its start state is gone: {error}"
    return ""


async def grow_bench(ledger: Ledger, envs: EnvClient, most: int) -> int:
    """Propose commits until the bench has `most` accepted tasks; the number of accepted ones now."""
    accepted = len(ledger.bench_tasks(accepted=True))
    for proposal in proposals(ledger, max(most - accepted, 0)):
        reason = await refusal(proposal.commit, envs)
        ledger.put_bench_task(proposal.task(), accepted=not reason, reason=reason, source_session=proposal.session_id)
        accepted += not reason
    return accepted
