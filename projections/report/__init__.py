"""The health report of a cluster: what failed, how soon it ran again, where device time went; from SQL alone.

`queries` asks, `loader` carries the answers into a `model`, `words` and `document` tell it, `markdown`, `page` and `plots` write it down.
Holds: what there is no data for is told as such, never as zero.
"""
