// A tool loop with streams in each JavaScript SDK of Gemini: node gemini_sdks.mjs MODULE URL MODEL

const [module, url, model] = process.argv.slice(2);
const PROMPT = "Please run `echo made by a tool` for me.";
const NAME = "run_shell_command";
const description = "Run a command";
const parameters = { type: "object", properties: { command: { type: "string" } }, required: ["command"] };
const output = "made by a tool";

async function genai() {
  const { GoogleGenAI } = await import(module);
  const client = new GoogleGenAI({ apiKey: "any", httpOptions: { baseUrl: url } });
  const config = { tools: [{ functionDeclarations: [{ name: NAME, description, parametersJsonSchema: parameters }] }] };
  const chat = client.chats.create({ model, config });
  let text = "";
  for (let message = PROMPT; message; ) {
    let call;
    for await (const chunk of await chat.sendMessageStream({ message })) {
      call ??= chunk.functionCalls?.[0];
      text += chunk.text ?? "";
    }
    message = call && [{ functionResponse: { id: call.id, name: call.name, response: { output } } }];
  }
  return text;
}

async function aiSdk() {
  const { createGoogleGenerativeAI } = await import(module);
  const { jsonSchema, stepCountIs, streamText, tool } = await import("ai");
  const google = createGoogleGenerativeAI({ apiKey: "any", baseURL: `${url}/v1beta` });
  const run = tool({ description, inputSchema: jsonSchema(parameters), execute: async () => output });
  const result = streamText({ model: google(model), prompt: PROMPT, tools: { [NAME]: run }, stopWhen: stepCountIs(3) });
  return await result.text;
}

async function langchain() {
  const { ChatGoogleGenerativeAI } = await import(module);
  const tools = [{ functionDeclarations: [{ name: NAME, description, parameters }] }];
  const chat = new ChatGoogleGenerativeAI({ apiKey: "any", baseUrl: url, model }).bindTools(tools);
  const messages = [{ role: "user", content: PROMPT }];
  for (;;) {
    let whole;
    for await (const chunk of await chat.stream(messages)) whole = whole ? whole.concat(chunk) : chunk;
    if (!whole.tool_calls.length) return whole.text;
    messages.push(whole, { role: "tool", content: output, tool_call_id: whole.tool_calls[0].id, name: NAME });
  }
}

const loops = { genai31: genai, genai232: genai, "@ai-sdk/google": aiSdk, "@langchain/google-genai": langchain };
console.log(await loops[module]());
