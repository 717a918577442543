"""The `esopt` command: one file a subcommand."""
