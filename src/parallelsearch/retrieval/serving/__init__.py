"""The retriever behind HTTP: server, wire format, client."""
