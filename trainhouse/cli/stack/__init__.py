"""Commands about the platform: processes, credentials, tokens, projects."""
