"""Encoder, embeddings, index and the retriever built on them; local, and behind HTTP."""
