"""Messages and tool calls to token ids and back. Chat messages and recorded ids come in; the ids of a context, parsed
replies and the token-exact log of a session go out. Earlier turns are never tokenised again.
May import records. No torch.
"""

from ostinato.render.format import ChatFormat, ParsedReply, ReplyStream
from ostinato.render.tiny import SPECIAL_TOKENS, TinyFormat
from ostinato.render.tokenizer import Tokenizer

__all__ = ["SPECIAL_TOKENS", "ChatFormat", "ParsedReply", "ReplyStream", "TinyFormat", "Tokenizer"]
