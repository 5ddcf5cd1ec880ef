"""One module per protocol, each with `build(services) -> Wire`. None imports another."""
