"""Conversations: their states, commands, and the writes that these lead to. Pure."""
