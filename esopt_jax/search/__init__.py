"""Programs that are searched for: tasks that score them."""
