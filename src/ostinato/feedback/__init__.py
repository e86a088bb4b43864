"""The client's side of feedback: a client's files and its events come in; measured survival of edits and durable,
repeated delivery to the gateway go out. May import records.
"""

from ostinato.feedback.sender import FeedbackSender, SenderCounts
from ostinato.feedback.survival import EditTracker, Survival, edit_survival, four_gram_similarity, line_counts

__all__ = [
    "EditTracker",
    "FeedbackSender",
    "SenderCounts",
    "Survival",
    "edit_survival",
    "four_gram_similarity",
    "line_counts",
]
