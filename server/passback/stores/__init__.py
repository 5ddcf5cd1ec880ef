"""Stores of conversations: one module for each kind, all passing one contract suite.

The scheme of its URL selects a store (`open.open_store`). The rules of the transcript are in
`core.transcript`: a store compares versions and fences, and keeps records as opaque strings.
"""
