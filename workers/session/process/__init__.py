"""The rank's process: liveness, requests of the agent, exit, random generators."""
