"""Intake: screening of public records, and the directory of jobs and pools."""
