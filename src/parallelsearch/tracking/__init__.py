"""MLflow: a store that is created once, and one collector that fills it from result files."""
