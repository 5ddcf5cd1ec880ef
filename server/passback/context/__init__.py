"""What a model is shown of a conversation (DESIGN section 7); see docs/agents.md and docs/context.md."""
