"""The backend over the gateway's HTTP API."""
