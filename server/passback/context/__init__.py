"""The prompt and the context window of a model; see docs/how-to/agents.md and
docs/explanation/context.md.
"""
