"""The kinds of search index: built from embeddings, measured against exact search, opened with their corpus."""
