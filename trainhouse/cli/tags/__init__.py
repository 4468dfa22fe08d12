"""Tags and notes of jobs."""
