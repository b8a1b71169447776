"""The accounts of upstreams, and the limits of client keys.

policy, health and error_actions are pure; stores/ has the state.
"""
