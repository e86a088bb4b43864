"""The code index. Files and a pattern come in; matching lines go out. May import records."""

from ostinato.search.lexical import LIMIT, NO_MATCH, match_lines, search_files

__all__ = ["LIMIT", "NO_MATCH", "match_lines", "search_files"]
