"""Serving on this machine. The number of a port comes in; a socket that listens on 127.0.0.1 goes out, or the error
that says why the port cannot be used. Application and socket come in; HTTP is answered. May import records only.
"""

from ostinato.loopback.ports import listen
from ostinato.loopback.server import serve

__all__ = ["listen", "serve"]
