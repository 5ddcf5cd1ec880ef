"""passback: an agent server whose tools can run in the client's hands."""

__version__ = "0.1.0"
