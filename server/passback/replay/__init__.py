"""Plays a recorded run back to a client, without the server and the model that it came from."""
