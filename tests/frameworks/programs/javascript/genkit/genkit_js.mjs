// Genkit for JavaScript, whose own spans go to an OTLP exporter.
import { enableTelemetry } from "genkit/tracing";
import { BatchSpanProcessor } from "@opentelemetry/sdk-trace-node";
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-proto";

// Before Genkit starts, and without a tracer provider of your own: Genkit's would not be used then.
await enableTelemetry({ spanProcessors: [new BatchSpanProcessor(new OTLPTraceExporter())] });

// The story.
import { openAICompatible } from "@genkit-ai/compat-oai";
import { genkit, z } from "genkit";
import { flushTracing } from "genkit/tracing";
import { instructions, lookUpVessel, model, purpose, question, tool, toolPurpose } from "../kit/story.mjs";

const ai = genkit({
  plugins: [openAICompatible({ name: "office", baseURL: process.env.OPENAI_BASE_URL, apiKey: "dummy", maxRetries: 0 })],
  model: `office/${model}`,
});
const lookUp = ai.defineTool(
  { name: tool, description: toolPurpose, inputSchema: z.object({ name: z.string() }), outputSchema: z.string() },
  // An error of a tool ends the flow in Genkit, so the model is told of it instead.
  ({ name }) => lookUpVessel(name).catch((error) => `Error: ${error.message}`),
);
const agent = (name, tools = []) =>
  ai.defineFlow({ name, inputSchema: z.string(), outputSchema: z.string() }, async (task) => {
    return (await ai.generate({ system: instructions[name], prompt: task, tools, maxTurns: 8 })).text;
  });
const ask = (name, flow) =>
  ai.defineTool(
    { name: `ask_${name}`, description: purpose[name], inputSchema: z.object({ task: z.string() }), outputSchema: z.string() },
    ({ task }) => flow(task),
  );
const askRegistrar = ask("registrar", agent("registrar", [lookUp]));
const askPurser = ask("purser", agent("purser"));
const concierge = agent("concierge", [askRegistrar, askPurser]);

try {
  console.log(await concierge(question));
} finally {
  await flushTracing();
}
