"""The base of all clients of models' services: connections, retries, bounds, events, failures.

The clients do not import each other, and this package imports none of them.
"""
