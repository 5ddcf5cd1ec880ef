"""Floor 1: the agent. It sees only core."""
