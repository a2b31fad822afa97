// Mastra, its own OpenTelemetry exporter.
import { Mastra } from "@mastra/core";
import { Observability } from "@mastra/observability";
import { OtelExporter } from "@mastra/otel-exporter";

const exporter = new OtelExporter({
  provider: { custom: { endpoint: `${process.env.OTEL_EXPORTER_OTLP_ENDPOINT}/v1/traces`, protocol: "http/protobuf" } },
});
const observability = new Observability({
  configs: { default: { serviceName: process.env.OTEL_SERVICE_NAME, exporters: [exporter] } },
});

// The story.
import { Agent } from "@mastra/core/agent";
import { createTool } from "@mastra/core/tools";
import { createOpenAI } from "@ai-sdk/openai";
import { z } from "zod";
import { instructions, lookUpVessel, model, purpose, question, tool, toolPurpose } from "../kit/story.mjs";

const openai = createOpenAI({ baseURL: process.env.OPENAI_BASE_URL });
const lookUp = createTool({
  id: tool,
  description: toolPurpose,
  inputSchema: z.object({ name: z.string() }),
  execute: ({ name }) => lookUpVessel(name),
});
const agent = (name, more = {}) =>
  new Agent({
    id: name,
    name,
    description: purpose[name],
    instructions: instructions[name],
    model: openai.chat(model),
    maxRetries: 0,
    ...more,
  });
const registrar = agent("registrar", { tools: { [tool]: lookUp } });
const purser = agent("purser");
const concierge = agent("concierge", { agents: { registrar, purser } });
const mastra = new Mastra({ agents: { concierge, registrar, purser }, observability, logger: false });

try {
  console.log((await mastra.getAgent("concierge").generate(question)).text);
} finally {
  await mastra.shutdown();
}
