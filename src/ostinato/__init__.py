"""Ostinato keeps improving a coding agent's language model from the way people use it.

The rooms and what each may import are described in `docs/architecture.md`; `tests/test_layers.py` holds them to it.
"""

__version__ = "0.1.0"
