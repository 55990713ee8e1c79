"""Rule packs: authored dependency rules, never inferred from the run that they judge."""
