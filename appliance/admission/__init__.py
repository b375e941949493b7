"""Who may use an engine, when, and who has to go when there is not enough of it."""
