"""Questions: every data set's own file becomes a list of Question, tagged with its structure and stored as parquet."""
