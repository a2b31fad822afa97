// OpenAI's client for Go, traced by hand in the GenAI conventions: spans around agents, calls and tools.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"agents/kit"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

var tracer = otel.Tracer("office")

// traced runs one operation of an agent (invoke_agent, chat, execute_tool) in its span.
func traced[T any](ctx context.Context, operation, agent string, do func(context.Context, trace.Span) (T, error)) (T, error) {
	ctx, span := tracer.Start(ctx, operation+" "+agent)
	defer span.End()
	span.SetAttributes(
		attribute.String("gen_ai.operation.name", operation),
		attribute.String("gen_ai.agent.name", agent),
	)
	found, err := do(ctx, span)
	if err != nil {
		span.RecordError(err)
		span.SetStatus(codes.Error, err.Error())
	}
	return found, err
}

// written sets an attribute to a value in JSON.
func written(span trace.Span, key string, value any) {
	text, _ := json.Marshal(value)
	span.SetAttributes(attribute.String(key, string(text)))
}

func main() {
	ctx := context.Background()
	shutdown, err := kit.Traces(ctx)
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

type tool func(ctx context.Context, arguments map[string]string) (string, error)

func tell(ctx context.Context) (string, error) {
	client := openai.NewClient(option.WithMaxRetries(0))
	asking := func(name string, tools map[string]tool) tool {
		return func(ctx context.Context, in map[string]string) (string, error) {
			return run(ctx, client, name, in["task"], tools)
		}
	}
	registrar := asking("registrar", map[string]tool{
		kit.Story.Tool: func(ctx context.Context, in map[string]string) (string, error) {
			return kit.LookUpVessel(ctx, in["name"])
		},
	})
	tools := map[string]tool{"ask_registrar": registrar, "ask_purser": asking("purser", nil)}
	return run(ctx, client, "concierge", kit.Story.Question, tools)
}

func run(ctx context.Context, client openai.Client, name, task string, tools map[string]tool) (string, error) {
	return traced(ctx, "invoke_agent", name, func(ctx context.Context, span trace.Span) (string, error) {
		messages := []openai.ChatCompletionMessageParamUnion{
			openai.SystemMessage(kit.Story.Instructions[name]), openai.UserMessage(task),
		}
		for {
			reply, err := chat(ctx, client, name, messages, tools)
			if err != nil {
				return "", err
			}
			if len(reply.ToolCalls) == 0 {
				return reply.Content, nil
			}
			messages = append(messages, reply.ToParam())
			for _, call := range reply.ToolCalls {
				result, err := used(ctx, name, call.ID, call.Function.Name, call.Function.Arguments, tools)
				if err != nil {
					result = "Error: " + err.Error()
				}
				messages = append(messages, openai.ToolMessage(result, call.ID))
			}
		}
	})
}

func chat(ctx context.Context, client openai.Client, name string, messages []openai.ChatCompletionMessageParamUnion, tools map[string]tool) (openai.ChatCompletionMessage, error) {
	return traced(ctx, "chat", name, func(ctx context.Context, span trace.Span) (openai.ChatCompletionMessage, error) {
		written(span, "gen_ai.input.messages", messages)
		asked := openai.ChatCompletionNewParams{Model: kit.Story.Model, Messages: messages, Tools: offered(tools)}
		answer, err := client.Chat.Completions.New(ctx, asked)
		if err != nil {
			return openai.ChatCompletionMessage{}, err
		}
		reply := answer.Choices[0].Message
		span.SetAttributes(
			attribute.String("gen_ai.request.model", kit.Story.Model),
			attribute.Int64("gen_ai.usage.input_tokens", answer.Usage.PromptTokens),
			attribute.Int64("gen_ai.usage.output_tokens", answer.Usage.CompletionTokens),
		)
		written(span, "gen_ai.output.messages", []any{reply.ToParam()})
		return reply, nil
	})
}

func used(ctx context.Context, agent, id, name, arguments string, tools map[string]tool) (string, error) {
	return traced(ctx, "execute_tool", agent, func(ctx context.Context, span trace.Span) (string, error) {
		span.SetAttributes(
			attribute.String("gen_ai.tool.name", name),
			attribute.String("gen_ai.tool.call.id", id),
			attribute.String("gen_ai.tool.call.arguments", arguments),
		)
		var in map[string]string
		if err := json.Unmarshal([]byte(arguments), &in); err != nil {
			return "", err
		}
		result, err := tools[name](ctx, in)
		span.SetAttributes(attribute.String("gen_ai.tool.call.result", result))
		return result, err
	})
}

func offered(tools map[string]tool) (found []openai.ChatCompletionToolUnionParam) {
	for name := range tools {
		argument := "task"
		if name == kit.Story.Tool {
			argument = "name"
		}
		found = append(found, openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{
			Name: name,
			Parameters: openai.FunctionParameters{
				"type":       "object",
				"properties": map[string]any{argument: map[string]string{"type": "string"}},
				"required":   []string{argument},
			},
		}))
	}
	return found
}
