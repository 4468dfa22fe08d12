"""Options, output, filters and exit codes that commands share."""
