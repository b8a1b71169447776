"""What OpenAI's protocols share. It is no protocol: it has no spec, and it imports none."""
