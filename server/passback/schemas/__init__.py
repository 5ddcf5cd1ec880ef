"""JSON Schema: check schemas, and arguments against schemas, in bounded time."""
