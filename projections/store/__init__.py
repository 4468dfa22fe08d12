"""ClickHouse as the projections write it: connection, schema, migrations, positions, repairs."""
