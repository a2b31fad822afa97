// Three agents with Vercel's AI SDK, one after the other: a sales report. Any OpenAI-compatible model.

import { createOpenAI } from "@ai-sdk/openai";
import { generateText, stepCountIs, tool } from "ai";
import { z } from "zod";

const FIGURES = { north: { january: 1200, february: 1450, march: 980 } };
const sales = tool({
  description: "Units sold in a region, by month of the first quarter.",
  inputSchema: z.object({ region: z.string() }),
  execute: async ({ region }) => FIGURES[region] ?? { error: `no figures for the region '${region}'` },
});

const model = createOpenAI()("gpt-4o-mini");
async function ask(system, prompt, tools) {
  return (await generateText({ model, system, prompt, tools, stopWhen: stepCountIs(5) })).text;
}

const task = `How many units did we sell in the ${process.env.REGION ?? "north"} in the first quarter?`;
const figures = await ask("You are the researcher. Look the monthly sales up and report them.", task, { sales });
const total = await ask("You are the analyst. Add the monthly sales up.", `${task}\n${figures}`);
console.log(await ask("You are the writer. Answer in one sentence.", `${task}\n${total}`));
