"""The chat socket."""
