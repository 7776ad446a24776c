"""Every way of answering a question, one file each: a Strategy returns an Episode."""
