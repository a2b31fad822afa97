// LangChain.js, instrumented by OpenInference.
import { LangChainInstrumentation } from "@arizeai/openinference-instrumentation-langchain";
import * as CallbackManagerModule from "@langchain/core/callbacks/manager";
import { provider } from "../kit/telemetry.mjs";

new LangChainInstrumentation({ tracerProvider: provider }).manuallyInstrument(CallbackManagerModule);

// The story.
import { answer } from "../kit/langchain_story.mjs";

try {
  console.log(await answer());
} finally {
  await provider.shutdown();
}
