// The story as the recorder tells it (kit/story.py), and the tool that asks the register.
export const story = JSON.parse(process.env.SCENARIO_STORY);
export const { question, instructions, purpose, model, tool, toolPurpose } = story;

export async function lookUpVessel(name) {
  const answer = await fetch(`${process.env.OFFICE_URL.replace(/\/v1$/, "")}/tools/${tool}`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ name }),
  });
  const said = await answer.text();
  if (!answer.ok) throw new RegisterUnavailable(said);
  return said;
}

export class RegisterUnavailable extends Error {
  name = "RegisterUnavailable";
}
