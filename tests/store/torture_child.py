"""What the durability tests kill. Run as `python torture_child.py`; each line on stdin is a round:

    NUMBER THREADS FOLDER SHADOW MODE

A fork of this process then writes to the ledger in FOLDER from THREADS threads until it is killed, and says on stdout
what was acknowledged, one line each, after the call returned. SHADOW is for the preloaded shim ("-" without it). MODE
"careless" switches synchronous commits off, to show that the test would notice.
"""

import os
import sys
import threading
import traceback
from pathlib import Path

import msgspec

from ostinato.records import (
    Fate,
    FeedbackEvent,
    Outcome,
    Rating,
    RewardRecord,
    SessionRow,
    Turn,
    TurnTrace,
    VersionSpan,
)
from ostinato.store import Ledger, Transaction


def trace_of(turn_id: str) -> TurnTrace:
    """The trace that belongs to a turn, so that a reader can tell a wrong one."""
    seed = sum(turn_id.encode())
    return TurnTrace(0, [1, seed], [seed + n for n in range(20)], [-n / 7 for n in range(20)], turn_id.encode() * 20)


def say(*words: str) -> None:
    """One line in one system call, so that a kill cannot cut it."""
    os.write(1, (" ".join(words) + "\n").encode())


def one_session(ledger: Ledger, name: str) -> None:
    """A session's whole life, each step acknowledged."""
    turn_id = f"turn-{name}"
    ledger.open_session(SessionRow(name, "ada", "live", 1.0, 1.0))
    say("session", name)
    early = FeedbackEvent(f"early-{name}", turn_id, 1.0, Rating(1))
    ledger.add_feedback(early, None)
    say("feedback", name, early.event_id)
    turn = Turn(turn_id, name, 0, 0, "", "release", (VersionSpan(0, "v"),), None, 1.0, 1.0, None, None, True)
    ledger.begin_turn(turn, b'[{"role": "user", "content": "hello"}]')
    say("begun", name, turn_id)
    ledger.finish_turn(msgspec.structs.replace(turn, finish_reason="stop", ended_at=2.0, trace=trace_of(turn_id)))
    say("finished", name, turn_id)
    late = FeedbackEvent(f"late-{name}", turn_id, 2.0, Rating(-1))
    for _ in range(2):
        ledger.add_feedback(late, name)
        say("feedback", name, late.event_id)
    ledger.close_session(name, 3.0)
    reward = RewardRecord(name, Outcome.KEPT, 1.0, {}, {}, "r", 3.0)

    def both(tx: Transaction) -> None:
        tx.put_reward(reward)
        tx.put_fate(name, Fate.TRAINED, "used", "v2")

    ledger.commit(both)
    say("rewarded", name)
    ledger.count("sessions")
    say("counted", name)


def work(ledger: Ledger, prefix: str, seals: bool) -> None:
    """Sessions until the kill; one thread also seals. Anything unexpected ends the process with a mark of its own."""
    try:
        number = 0
        while True:
            one_session(ledger, f"{prefix}-{number}")
            number += 1
            key = ledger.seal_traces(ledger.unsealed_sessions(8)) if seals else None
            if key is not None:
                say("sealed", key)
    except BaseException:
        say("failed", traceback.format_exc().replace("\n", " | ")[-3000:])
        os._exit(98)


def sync_all(folder: Path) -> None:
    """What a folder holds before a round is on the disk already: tell the shim so."""
    for path in [*sorted(folder.rglob("*")), folder]:
        if not path.name.endswith("-shm"):
            handle = os.open(path, os.O_RDONLY)
            os.fsync(handle)
            os.close(handle)


def play(number: str, threads: str, folder: str, shadow: str, mode: str) -> None:
    """One round; ends by being killed."""
    if shadow != "-":
        os.environ["DURABLE_ROOT"] = folder
        os.environ["DURABLE_SHADOW"] = shadow
        sync_all(Path(folder))
    say("ready", "round")
    try:
        ledger = Ledger.open(Path(folder), owner=True)
    except BaseException:
        say("failed", traceback.format_exc().replace("\n", " | ")[-3000:])
        os._exit(98)
    if mode == "careless":
        ledger.committer._db.execute("PRAGMA synchronous = OFF")
    for thread in range(int(threads)):
        threading.Thread(target=work, args=(ledger, f"{number}-{thread}", thread == 0)).start()
    threading.Event().wait()


def main() -> None:
    """Fork for each line, say who was born and when it died."""
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            play(*line.split())
        say("born", str(pid))
        _, status = os.waitpid(pid, 0)
        say("dead", str(os.waitstatus_to_exitcode(status)))


if __name__ == "__main__":
    main()
