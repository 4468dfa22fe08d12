"""MLflow's REST API over Trainhouse: code that logs with MLflow's client logs here, as events.

Holds: it writes only events and reads only projections; an experiment belongs to a project, and a run is a job that nobody scheduled.
Never: needs MLflow's package.
"""
