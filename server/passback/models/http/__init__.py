"""What the clients of models' services have in common: connections, attempts, bounds, events, failures.

The clients are siblings that do not know each other; this is the floor that they stand on, and it knows none of them.
"""
