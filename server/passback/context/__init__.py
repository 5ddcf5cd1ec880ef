"""The prompt and the context window of a model; see docs/agents.md and docs/context.md."""
