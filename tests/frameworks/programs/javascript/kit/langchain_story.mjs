// The story with LangChain.js: the concierge asks the other two, which are tools.
import { tool as defineTool } from "@langchain/core/tools";
import { ChatOpenAI } from "@langchain/openai";
import { createAgent } from "langchain";
import { z } from "zod";
import { instructions, lookUpVessel, model, purpose, question, tool, toolPurpose } from "./story.mjs";

const llm = new ChatOpenAI({ model, maxRetries: 0, configuration: { baseURL: process.env.OPENAI_BASE_URL } });
const agent = (name, tools = []) => createAgent({ name, model: llm, tools, systemPrompt: instructions[name] });

async function asked(one, text, config) {
  const { messages } = await one.invoke({ messages: [{ role: "user", content: text }] }, config);
  return messages.at(-1).content;
}

// What is around an agent's work: a span of the user's own, where the instrumentation writes none.
const nothing = (_, work) => work();

export async function answer(around = nothing) {
  const lookUp = defineTool(({ name }) => lookUpVessel(name), {
    name: tool,
    description: toolPurpose,
    schema: z.object({ name: z.string() }),
  });
  const ask = (name, tools) => {
    const one = agent(name, tools);
    return defineTool(({ task }, config) => around(name, () => asked(one, task, config)), {
      name: `ask_${name}`,
      description: purpose[name],
      schema: z.object({ task: z.string() }),
    });
  };
  const concierge = agent("concierge", [ask("registrar", [lookUp]), ask("purser")]);
  return around("concierge", () => asked(concierge, question));
}
