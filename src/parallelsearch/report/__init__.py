"""Tables, figures and the report page; everything is read from files."""
