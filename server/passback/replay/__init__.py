"""Replay of a recorded run to a client, without the server and the model that it came from."""
