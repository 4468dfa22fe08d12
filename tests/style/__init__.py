"""Style checks that no linter of the field makes: the words of docstrings and module names, and the shape of folders and functions."""
