"""What a model is shown of a long conversation (DESIGN section 7); see docs/context.md."""
