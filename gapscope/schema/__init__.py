"""Canonical tables, the run catalog and the SQL view installer."""
