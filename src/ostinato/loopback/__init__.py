"""The ports of this machine that our servers listen on. A number comes in; a socket that listens on 127.0.0.1 goes out,
or the error that says why the port cannot be used. May import records only.
"""

from ostinato.loopback.ports import listen

__all__ = ["listen"]
