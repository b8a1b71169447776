"""The feed of events at /admin/events: what happens to requests, while somebody reads it.

Each worker keeps its latest events in a ring, and only while there are readers. A reader has a place in the ring of
each worker, so one that is slow loses events and holds up nothing.
"""
