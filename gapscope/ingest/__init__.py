"""Readers of foreign captures and the writer of run directories."""
