"""Floor 1: where server tools come from."""
