"""What the server costs beside a minimal proxy of the same work: `benchmarks/run`, docs/explanation/performance.md."""
