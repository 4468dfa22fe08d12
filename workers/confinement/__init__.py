"""Confines the processes of an attempt: a uid, a view of the file system, processes, system calls and memory of its own.

Parts: `plan` (what a job may see: pure), `view` (builds it), `sandbox` (the namespaces of one attempt, and how a process enters them),
`seccomp`, `cgroups`, `layers` (what this machine gives), `system` (system calls).
"""
