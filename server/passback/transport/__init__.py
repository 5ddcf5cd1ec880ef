"""What several wires share: HTTP limits, errors as JSON, access, streams of events, tool declarations."""
