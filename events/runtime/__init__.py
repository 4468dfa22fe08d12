"""Logs, figures, the clock and watched files of every process."""
