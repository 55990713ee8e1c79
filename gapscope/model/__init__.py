"""Dependency model: rules, the bound they allow, what held a gap, what removing it would give."""
