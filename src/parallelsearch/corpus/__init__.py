"""Raw collections of text -> passages.parquet, the only form in which the rest of the house knows a corpus."""
