"""The command line. Each command's module imports what is heavy inside of its functions, so that help is quick."""
