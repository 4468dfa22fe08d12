"""What people use today, measured in the same run."""
