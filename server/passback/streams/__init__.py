"""Server-sent events: framing, writing to a client, and backpressure."""
