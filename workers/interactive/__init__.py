"""Program of an interactive job: terminals, ssh and Jupyter behind one socket, which the node's agent connects with their users.

`python -m trainhouse.workers.interactive` is the command of such a job.
"""
