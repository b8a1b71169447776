"""Client keys with their limits and budgets, the usage and the price of a request, and what money accounts have left.

stores/ has the state of accounts and limits. What an error means for an account is decided in the package `policy`.
"""
