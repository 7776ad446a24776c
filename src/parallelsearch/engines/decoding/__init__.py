"""Many requests decoded together with a Hugging Face model: its passes, its keys and values, its choice of tokens."""
