"""One module per protocol. Each has `build(services) -> Wire`; they do not know each other."""
