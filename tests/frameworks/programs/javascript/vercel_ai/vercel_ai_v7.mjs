// Vercel's AI SDK 7, its own OpenTelemetry integration.
import { OpenTelemetry } from "@ai-sdk/otel";
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, registerTelemetry, stepCountIs, tool as defineTool } from "ai";
import { z } from "zod";
import { provider } from "../kit/telemetry.mjs";

registerTelemetry(new OpenTelemetry());

const named = (functionId) => ({ functionId }); // the agent's name on its spans

// The story.
import { instructions, lookUpVessel, model, purpose, question, toolPurpose } from "../kit/story.mjs";

const openai = createOpenAI({ baseURL: process.env.OPENAI_BASE_URL });

async function agent(name, prompt, tools = {}) {
  const { text } = await generateText({
    model: openai.chat(model),
    instructions: instructions[name],
    prompt,
    tools,
    stopWhen: stepCountIs(6),
    maxRetries: 0,
    telemetry: named(name),
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
