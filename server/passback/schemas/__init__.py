"""JSON Schema: whether a schema is one, and whether arguments fit it, each in bounded time."""
