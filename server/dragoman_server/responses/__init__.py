"""Stored responses: conversation is pure, service is for the endpoints, stores/ has the data.

reasoning is for Chat clients, which do not send it back.
"""
