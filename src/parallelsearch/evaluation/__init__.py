"""What a policy's episodes are worth: the episodes file, metrics and intervals."""
