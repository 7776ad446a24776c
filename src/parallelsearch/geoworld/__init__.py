"""GeoWorld: a small encyclopedia of real geographic facts with multi-hop questions over it, made without a download."""
