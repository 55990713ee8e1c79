"""Dependency model: rules, the bound that they allow, what held each gap, and what removing it would give."""
