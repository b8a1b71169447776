"""One request from its plan to its end. Start with client_request, plan and attempt, then request_handler."""
