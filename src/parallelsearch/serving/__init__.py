"""What every server of this project shares: who may ask, how large a request may be, and an orderly end."""
