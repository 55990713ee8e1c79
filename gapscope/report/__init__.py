"""The report as a typed document, built from the views of a run."""
