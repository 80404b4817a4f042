"""The `seawall` command: one module for each subcommand, loaded when it is called."""
