"""A second stage: a cross-encoder reads query and passage together and puts the first hits in a new order."""
