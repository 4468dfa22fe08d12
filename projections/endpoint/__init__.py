"""ClickHouse's HTTP interface over the embedded engine: read-only, on loopback, bounded."""
