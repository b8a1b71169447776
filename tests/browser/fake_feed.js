const original = window.fetch, count = 5000;
window.fetch = (url, options) => {
  if (!String(url).includes('/admin/events')) return original(url, options);
  const text = (kind, data) => `event: ${kind}\ndata: ${JSON.stringify(data)}\n\n`;
  let sent = 0;
  const body = new ReadableStream({
    async pull(controller) {
      if (sent === count) return new Promise(() => {});
      let piece = sent ? '' : text('hello', {at: Date.now() / 1000, resumed: null});
      for (const end = sent + 100; sent < end; sent += 1) {
        const of = {request: String(sent).padStart(32, '0'), at: Date.now() / 1000, protocol: 'openai_chat'};
        piece += text('request.begun', {...of, path: '/v1/chat/completions', worker: 1});
        piece += text('request.planned', {...of, model: `model-${sent % 7}`, upstream: 'up', upstream_model: 'm'});
        piece += text('request.ended', {...of, outcome: 'completed', status: 200, duration_s: 1});
      }
      controller.enqueue(new TextEncoder().encode(piece));
      await new Promise((resolve) => setTimeout(resolve, 10));
    },
  });
  return Promise.resolve(new Response(body, {status: 200}));
};
