// What a client sends first in each protocol: its path, and the smallest body that streams.

const TEXT = "Say hello in one sentence.";

export const PROTOCOLS = {
  "OpenAI Chat Completions": {
    path: () => "/v1/chat/completions",
    body: (model) => ({ model, messages: [{ role: "user", content: TEXT }], stream: true }),
  },
  "Anthropic Messages": {
    path: () => "/v1/messages",
    body: (model) => ({ model, max_tokens: 256, messages: [{ role: "user", content: TEXT }], stream: true }),
  },
  "OpenAI Responses": {
    path: () => "/v1/responses",
    body: (model) => ({ model, input: TEXT, stream: true }),
  },
  "Gemini generateContent": {
    path: (model) => `/v1beta/models/${model}:streamGenerateContent?alt=sse`,
    body: () => ({ contents: [{ role: "user", parts: [{ text: TEXT }] }] }),
  },
};
