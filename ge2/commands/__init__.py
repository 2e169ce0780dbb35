"""The subcommands of ge2, one module each; imported when used."""
