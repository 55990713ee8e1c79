"""Two runs against each other: may they be compared, what differs, and how sure that is."""
