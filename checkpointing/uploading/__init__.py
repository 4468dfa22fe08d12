"""Uploads of staged memory, in a process of their own where there is one."""
