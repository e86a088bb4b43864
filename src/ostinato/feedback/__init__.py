"""The client's side of feedback: a client's files and its events come in; measured survival of edits and durable,
repeated delivery to the gateway go out. May import records.
"""

from ostinato.feedback.persistence import EditFollower, HunkState, Persistence, ProposedEdit, propose_edit
from ostinato.feedback.places import Checkout
from ostinato.feedback.sender import FeedbackSender, SenderCounts
from ostinato.feedback.survival import EditTracker, Survival, edit_survival, four_gram_similarity, line_counts
from ostinato.feedback.watch import HORIZONS, WatchedEdit, Watcher, edit_since, leave_edit, watch_folder

__all__ = [
    "HORIZONS",
    "Checkout",
    "EditFollower",
    "EditTracker",
    "FeedbackSender",
    "HunkState",
    "Persistence",
    "ProposedEdit",
    "SenderCounts",
    "Survival",
    "WatchedEdit",
    "Watcher",
    "edit_since",
    "edit_survival",
    "four_gram_similarity",
    "leave_edit",
    "line_counts",
    "propose_edit",
    "watch_folder",
]
