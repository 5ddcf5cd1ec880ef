"""The native protocol of `POST /send-message`: requests, events, documents, history, OpenAPI."""
