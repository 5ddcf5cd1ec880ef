"""Where conversations are kept: one module per kind of store, all passing one contract suite.

A store is chosen by its URL's scheme (`open.open_store`). The rules of the transcript are in `core.transcript`: a
store compares versions and fences, and keeps what it is given as opaque strings.
"""
