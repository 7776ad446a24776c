"""What generates text: one interface, and a model in this process, vLLM or a server behind it."""
