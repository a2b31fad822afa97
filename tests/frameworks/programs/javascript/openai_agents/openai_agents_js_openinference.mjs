// OpenAI's Agents SDK for JavaScript, instrumented by OpenInference.
import { OpenAIAgentsInstrumentation } from "@arizeai/openinference-instrumentation-openai-agents";
import * as agents from "@openai/agents";
import { provider } from "../kit/telemetry.mjs";

new OpenAIAgentsInstrumentation({ tracerProvider: provider }).manuallyInstrument(agents);

// The story.
import { z } from "zod";
import { instructions, lookUpVessel, model, purpose, question, tool, toolPurpose } from "../kit/story.mjs";

agents.setOpenAIAPI("chat_completions");

const lookUp = agents.tool({
  name: tool,
  description: toolPurpose,
  parameters: z.object({ name: z.string() }),
  execute: ({ name }) => lookUpVessel(name),
});
const agent = (name, more = {}) =>
  new agents.Agent({ name, instructions: instructions[name], handoffDescription: purpose[name], model, ...more });
const purser = agent("purser");
const registrar = agent("registrar", { tools: [lookUp], handoffs: [purser] });
const concierge = agent("concierge", { handoffs: [registrar] });

try {
  console.log((await agents.run(concierge, question)).finalOutput);
} finally {
  await provider.shutdown();
}
