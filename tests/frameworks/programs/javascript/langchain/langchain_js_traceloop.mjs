// LangChain.js, instrumented by Traceloop's OpenLLMetry.
import { LangChainInstrumentation } from "@traceloop/instrumentation-langchain";
import * as CallbackManagerModule from "@langchain/core/callbacks/manager";
import { provider } from "../kit/telemetry.mjs";

const instrumentation = new LangChainInstrumentation();
instrumentation.setTracerProvider(provider);
instrumentation.manuallyInstrument({ callbackManagerModule: CallbackManagerModule });

// Its spans have no parents of their own: without a span around each agent, every call is a trace by itself.
const tracer = provider.getTracer("office");
const agentSpan = (name, work) =>
  tracer.startActiveSpan(`invoke_agent ${name}`, async (span) => {
    span.setAttributes({ "gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": name });
    try {
      return await work();
    } finally {
      span.end();
    }
  });

// The story.
import { answer } from "../kit/langchain_story.mjs";

try {
  console.log(await answer(agentSpan));
} finally {
  await provider.shutdown();
}
