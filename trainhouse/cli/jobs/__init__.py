"""Commands about jobs: submit, follow, change, explain."""
