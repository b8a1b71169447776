"""One request from its plan to its end. Start with plan, then request_handler, attempt and account_pool."""
