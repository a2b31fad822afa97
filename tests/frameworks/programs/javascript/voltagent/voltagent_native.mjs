// VoltAgent, its own OpenTelemetry spans.
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-proto";
import { BatchSpanProcessor } from "@opentelemetry/sdk-trace-base";
import { VoltAgentObservability } from "@voltagent/core";

const exporter = new OTLPTraceExporter(); // reads OTEL_EXPORTER_OTLP_ENDPOINT
const observability = new VoltAgentObservability({
  serviceName: process.env.OTEL_SERVICE_NAME,
  spanProcessors: [new BatchSpanProcessor(exporter)],
});

// The story.
import { Agent, createTool } from "@voltagent/core";
import { createOpenAI } from "@ai-sdk/openai";
import { z } from "zod";
import { instructions, lookUpVessel, model, purpose, question, tool, toolPurpose } from "../kit/story.mjs";

const openai = createOpenAI({ baseURL: process.env.OPENAI_BASE_URL });
const lookUp = createTool({
  name: tool,
  description: toolPurpose,
  parameters: z.object({ name: z.string() }),
  execute: ({ name }) => lookUpVessel(name),
});
const agent = (name, more = {}) =>
  new Agent({
    name,
    purpose: purpose[name],
    instructions: instructions[name],
    model: openai.chat(model),
    maxRetries: 0,
    observability,
    ...more,
  });
const registrar = agent("registrar", { tools: [lookUp] });
const purser = agent("purser");
const concierge = agent("concierge", { subAgents: [registrar, purser] });

try {
  console.log((await concierge.generateText(question)).text);
} finally {
  await observability.shutdown();
  setTimeout(() => process.exit(), 0); // timers of its memory keep the process alive
}
