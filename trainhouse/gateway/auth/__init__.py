"""Authentication and roles: tokens, sessions, login codes, memberships."""
