"""The HTTP edge: access, limits, bodies, routing, and answers that are not streams."""
