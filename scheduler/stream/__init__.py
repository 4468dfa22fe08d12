"""The stream processors: pure machines run over Kafka by the journal protocol.

`intake_main`, `scheduler_main`, `detector_main` and `tuner_main` (`roles/`) each run one process by settings alone. This package
itself imports none of them: the command line reads journals through it, and Faust would cost each command a second.
Never: decides; that is `scheduler.core`.
"""
