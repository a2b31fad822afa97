// Vercel's AI SDK 6, experimental_telemetry.
import { createOpenAI } from "ai6-openai";
import { generateText, stepCountIs, tool as defineTool } from "ai6";
import { z } from "zod";
import { provider } from "../kit/telemetry.mjs";

const named = (functionId) => ({ isEnabled: true, functionId }); // the agent's name on its spans

// The story.
import { instructions, lookUpVessel, model, purpose, question, toolPurpose } from "../kit/story.mjs";

const openai = createOpenAI({ baseURL: process.env.OPENAI_BASE_URL });

async function agent(name, prompt, tools = {}) {
  const { text } = await generateText({
    model: openai.chat(model),
    system: instructions[name],
    prompt,
    tools,
    stopWhen: stepCountIs(6),
    maxRetries: 0,
    experimental_telemetry: named(name),
  });
  return text;
}

const look_up_vessel = defineTool({
  description: toolPurpose,
  inputSchema: z.object({ name: z.string() }),
  execute: ({ name }) => lookUpVessel(name),
});
const ask = (name, tools) =>
  defineTool({
    description: purpose[name],
    inputSchema: z.object({ task: z.string() }),
    execute: ({ task }) => agent(name, task, tools),
  });

try {
  const ask_registrar = ask("registrar", { look_up_vessel });
  console.log(await agent("concierge", question, { ask_registrar, ask_purser: ask("purser") }));
} finally {
  await provider.shutdown();
}
