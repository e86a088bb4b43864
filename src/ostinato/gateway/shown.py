"""What of a reply the client may see while it is drawn."""

from collections.abc import Sequence

from ostinato.render import ReplyStream


class Shown:
    """Text that is certain, cut before the first of the client's stop texts."""

    def __init__(self, stream: ReplyStream, stops: Sequence[str]) -> None:
        self.stopped = False
        self.sent = 0
        """Characters that were handed out."""
        self._stream = stream
        self._stops = tuple(stops)
        self._hold = max((len(stop) for stop in stops), default=1) - 1
        self._text = ""

    def feed(self, ids: Sequence[int]) -> str:
        """The text to show now. What might begin a stop text is held back."""
        if self.stopped:
            return ""
        self._text += self._stream.feed(ids)
        found = [at for at in (self._text.find(stop) for stop in self._stops) if at >= 0]
        self.stopped = bool(found)
        end = min(found) if found else max(self.sent, len(self._text) - self._hold)
        piece, self.sent = self._text[self.sent : end], end
        return piece
