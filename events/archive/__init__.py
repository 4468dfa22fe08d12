"""The archive of topics that never expire: their records in the object store, so that brokers need not keep them for ever.

`segments` is the form of one object, `partition` the objects of one topic partition, `log` that partition on the brokers. `writing` and
`trimming` move records from one to the other, `reading` puts the two together again.

To run it: `trainhouse archive` up to the topics' ends, `trainhouse archive --follow --trim` as a service (see `docs/operate/upkeep.md`).
"""
