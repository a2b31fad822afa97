// Genkit for Go, whose own spans go to an OTLP exporter.
package main

import (
	"context"
	"fmt"
	"os"

	"agents/kit"

	"github.com/firebase/genkit/go/ai"
	"github.com/firebase/genkit/go/core/api"
	"github.com/firebase/genkit/go/genkit"
	"github.com/firebase/genkit/go/plugins/compat_oai"
	"github.com/openai/openai-go/option"
)

func main() {
	ctx := context.Background()
	shutdown, err := kit.Traces(ctx) // before genkit.Init
	if err != nil {
		panic(err)
	}
	answer, err := tell(ctx)
	fmt.Println(answer, err)
	if shutdown(ctx) != nil || err != nil {
		os.Exit(1)
	}
}

// The story.

type vessel struct {
	Name string `json:"name"`
}
type task struct {
	Task string `json:"task"`
}

func tell(ctx context.Context) (string, error) {
	office := &compat_oai.OpenAICompatible{
		Provider: "office",
		APIKey:   "dummy",
		BaseURL:  os.Getenv("OPENAI_BASE_URL"),
		Opts:     []option.RequestOption{option.WithMaxRetries(0)},
	}
	g := genkit.Init(ctx, genkit.WithPlugins(api.Plugin(office)))
	model := office.DefineModel("office", kit.Story.Model, ai.ModelOptions{Supports: &compat_oai.BasicText})
	// An error of a tool ends the flow in Genkit, so the model is told of it instead.
	lookUp := genkit.DefineTool(g, kit.Story.Tool, kit.Story.ToolPurpose,
		func(ctx *ai.ToolContext, in vessel) (string, error) {
			found, err := kit.LookUpVessel(ctx, in.Name)
			if err != nil {
				return "Error: " + err.Error(), nil
			}
			return found, nil
		})
	agent := func(name string, tools ...ai.ToolRef) func(context.Context, string) (string, error) {
		flow := genkit.DefineFlow(g, name, func(ctx context.Context, in string) (string, error) {
			return genkit.GenerateText(ctx, g, ai.WithModel(model), ai.WithSystem(kit.Story.Instructions[name]),
				ai.WithPrompt(in), ai.WithTools(tools...), ai.WithMaxTurns(8))
		})
		return flow.Run
	}
	ask := func(name string, run func(context.Context, string) (string, error)) ai.ToolRef {
		return genkit.DefineTool(g, "ask_"+name, kit.Story.Purpose[name],
			func(ctx *ai.ToolContext, in task) (string, error) { return run(ctx, in.Task) })
	}
	askRegistrar := ask("registrar", agent("registrar", lookUp))
	askPurser := ask("purser", agent("purser"))
	return agent("concierge", askRegistrar, askPurser)(ctx, kit.Story.Question)
}
