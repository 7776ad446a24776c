"""The agent: what it may say, what it is shown, and the loop that joins the two."""
