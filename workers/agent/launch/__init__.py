"""Launch and watch of attempts: folders, code, secrets, confinement, leases, cleanup."""
