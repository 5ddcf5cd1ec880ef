"""The cost of the server beside a minimal proxy: see docs/explanation/performance.md."""
