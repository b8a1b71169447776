"""Limits of client keys and their stored keys, the usage and the price of a request, and the money that accounts have.

stores/ has the state of accounts and limits. What an error means for an account is decided in the package `policy`.
"""
