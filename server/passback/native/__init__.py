"""The native vocabulary: requests, events, documents, history and OpenAPI of `POST /send-message`."""
