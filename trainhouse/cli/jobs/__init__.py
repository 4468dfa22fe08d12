"""Commands about jobs: submit, follow, change, why pending."""
