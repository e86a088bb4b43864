"""Messages and tool calls to token ids and back. Chat messages and recorded ids come in; the ids of a context, parsed
replies and the token-exact log of a session go out. Earlier turns are never tokenised again.
May import records. No torch.
"""

from ostinato.render.format import ChatFormat, ParsedReply, ReplyStream
from ostinato.render.frames import format_for
from ostinato.render.jinja import JinjaFormat
from ostinato.render.log import Plan, TokenLog
from ostinato.render.tiny import SPECIAL_TOKENS, TinyFormat
from ostinato.render.tokenizer import Tokenizer

__all__ = [
    "SPECIAL_TOKENS",
    "ChatFormat",
    "JinjaFormat",
    "ParsedReply",
    "Plan",
    "ReplyStream",
    "TinyFormat",
    "TokenLog",
    "Tokenizer",
    "format_for",
]
