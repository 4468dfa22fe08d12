"""The API in the words of other training services: the same handlers under other paths and names."""
