"""Texts -> vectors: the declared encoders, their export, and the embeddings of a corpus in shards."""
