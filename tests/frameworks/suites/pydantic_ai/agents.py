"""A ticket desk in Pydantic AI: the researcher looks a price up, the analyst works the total out."""

from pydantic_ai import Agent

researcher = Agent(name="researcher", instructions="You are the researcher. Report the price.")
analyst = Agent(name="analyst", instructions="You are the analyst. Work the total out.")


@researcher.tool_plain
def ticket_price(crossing: str) -> str:
    """Look up the price of one ticket."""
    return f"One ticket for {crossing} costs 121 EUR."


@analyst.tool_plain
async def ask_researcher(question: str) -> str:
    """Ask the researcher for a price."""
    return (await researcher.run(question)).output


async def answer(question: str) -> str:
    """Answer a customer."""
    return (await analyst.run(question)).output
