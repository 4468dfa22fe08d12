"""Secrets of a machine: kept sealed on its disk or referred to elsewhere, granted to projects, resolved when ranks start."""
