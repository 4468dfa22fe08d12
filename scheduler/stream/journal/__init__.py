"""The shell of the journal protocol: hosts, owners, followers, publication, snapshots."""
