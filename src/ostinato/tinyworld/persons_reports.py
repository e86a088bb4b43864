"""What a person's client reports about a session, and when: events on the person's clock, measured at that moment."""

import asyncio
import time
from collections.abc import Callable

from ostinato.feedback import EditTracker, FeedbackSender
from ostinato.records import (
    Abandoned,
    Commit,
    EditProposed,
    EditReverted,
    EditSurvival,
    FeedbackEvent,
    FollowUp,
    Latency,
    Payload,
    SessionClosed,
)
from ostinato.tinyworld.persons_choices import files_after
from ostinato.tinyworld.persons_session import Session, tracker_of

SURVIVAL_DELAYS_S = (30.0, 300.0, 900.0)
"""When the client measures what is left of an edit, in seconds of the person's clock after the agent ended."""

LAST_WORD_S = 430.0
"""After this a person without an edit to follow has said what they will say."""


class Reports:
    """The reports of one session. `clock_rate`: seconds of the person's clock in one real second."""

    def __init__(self, session: Session, sender: FeedbackSender, clock_rate: float) -> None:
        self._session = session
        self._sender = sender
        self._rate = clock_rate
        self._sent = 0
        self._start = time.time()
        self._files = session.task.files
        self._tracker: EditTracker | None = None
        if session.changed:
            self._tracker = tracker_of(session.task, session.changed)
            self._files = _applied(session)

    async def run(self) -> None:
        """Report everything at its time; ends with the session's last event. Without a response there is nothing to
        report on."""
        if not self._session.run.response_ids:
            return
        self._at_once()
        begin = time.monotonic()
        for due_s, _, report in sorted(self._plan()):
            await asyncio.sleep(max(0.0, begin + due_s / self._rate - time.monotonic()))
            report(due_s)

    def _at_once(self) -> None:
        run = self._session.run
        if self._tracker is not None:
            tracker = self._tracker
            self._send(0.0, EditProposed(list(tracker.files), tracker.lines_added, tracker.lines_removed))
        self._send(0.0, run.ended(self._session.sandbox_id))
        self._send(0.0, Latency(run.model_s, run.tools_s))

    def _plan(self) -> list[tuple[float, int, Callable[[float], None]]]:
        """What is to come: when (the person's seconds after the agent ended), order among equals, and what."""
        choice = self._session.choice
        plan: list[tuple[float, int, Callable[[float], None]]] = []
        last = LAST_WORD_S
        if self._tracker is not None:
            plan += [(delay, 1, self._measure) for delay in SURVIVAL_DELAYS_S]
            plan.append((choice.act_s, 0, self._act))
            last = SURVIVAL_DELAYS_S[-1]
        elif choice.action == "abandon":
            plan.append((choice.act_s, 0, self._act))
        if choice.says:
            plan.append((choice.say_s, 2, lambda at: self._send(at, FollowUp(choice.says))))
        if choice.commits:
            plan.append((LAST_WORD_S, 3, self._commit))
        if choice.action == "none" and not choice.commits:
            last = max(choice.act_s, choice.say_s)
        plan.append((last, 9, lambda at: self._send(at, SessionClosed())))
        return plan

    def _act(self, at_s: float) -> None:
        session = self._session
        self._files = files_after(session.task, session.changed, session.choice)
        if session.choice.action == "revert":
            self._send(at_s, EditReverted(at_s))
        elif session.choice.action == "abandon":
            self._send(at_s, Abandoned())

    def _measure(self, at_s: float) -> None:
        assert self._tracker is not None, "only an edit is measured"
        found = self._tracker.survival(self._files)
        self._send(at_s, EditSurvival(at_s, found.four_gram, found.no_revert))

    def _commit(self, at_s: float) -> None:
        """The person commits what they have; where nothing of the agent's is left, their own solution."""
        task, repository = self._session.task, self._session.repository
        files = self._files if self._files != task.files else task.files | task.reference
        sha = repository.commit(files, task.request, self._start + at_s)
        changed = {path: text for path, text in repository.changes().items() if text is not None}
        self._send(at_s, Commit(self._session.base, task.request, changed, task.tests, task.test_command, sha))

    def _send(self, at_s: float, payload: Payload) -> None:
        session = self._session
        event_id = f"{session.session_id}-{self._sent}"
        self._sent += 1
        at = self._start + at_s
        self._sender.send(FeedbackEvent(event_id, session.run.response_ids[-1], at, payload))


def _applied(session: Session) -> dict[str, str]:
    files = session.task.files | session.changed
    return {path: text for path, text in files.items() if text is not None}
