package office;

import io.micrometer.common.KeyValue;
import io.micrometer.observation.Observation;
import io.micrometer.observation.ObservationFilter;
import io.micrometer.observation.ObservationRegistry;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.function.Supplier;
import org.springframework.ai.chat.client.ChatClient;
import org.springframework.ai.chat.messages.AssistantMessage;
import org.springframework.ai.chat.messages.Message;
import org.springframework.ai.chat.messages.ToolResponseMessage;
import org.springframework.ai.chat.observation.ChatModelObservationContext;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.context.annotation.Bean;
import tools.jackson.databind.json.JsonMapper;

/** Spring AI with an observation around each agent, and with the texts of model calls. */
@SpringBootApplication
public class SpringAiNamed {
    /** Runs an agent's work in a span that names it. */
    static String agent(ObservationRegistry registry, String name, Supplier<String> work) {
        return Observation.createNotStarted("agent", registry)
                .contextualName("invoke_agent " + name)
                .lowCardinalityKeyValue("gen_ai.operation.name", "invoke_agent")
                .lowCardinalityKeyValue("gen_ai.agent.name", name)
                .observe(work);
    }

    /** Adds what a model heard and said to its span, in OpenTelemetry's GenAI conventions. */
    @Bean
    ObservationFilter texts() {
        return context -> {
            if (context instanceof ChatModelObservationContext call) {
                add(call, "gen_ai.input.messages", call.getRequest().getInstructions());
                if (call.getResponse() != null && call.getResponse().getResult() != null) {
                    add(call, "gen_ai.output.messages", List.of(call.getResponse().getResult().getOutput()));
                }
            }
            return context;
        };
    }

    private static void add(Observation.Context context, String key, List<? extends Message> messages) {
        var told = messages.stream().map(SpringAiNamed::told).toList();
        context.addHighCardinalityKeyValue(KeyValue.of(key, JsonMapper.shared().writeValueAsString(told)));
    }

    private static Map<String, Object> told(Message message) {
        List<Map<String, Object>> parts = new ArrayList<>();
        if (message.getText() != null && !message.getText().isEmpty()) {
            parts.add(Map.of("type", "text", "content", message.getText()));
        }
        if (message instanceof AssistantMessage said) {
            for (var call : said.getToolCalls()) {
                parts.add(Map.of("type", "tool_call", "id", call.id(), "name", call.name(), "arguments", call.arguments()));
            }
        }
        if (message instanceof ToolResponseMessage results) {
            for (var result : results.getResponses()) {
                parts.add(Map.of("type", "tool_call_response", "id", result.id(), "result", result.responseData()));
            }
        }
        return Map.of("role", message.getMessageType().getValue(), "parts", parts);
    }

    // The story.
    public static void main(String[] arguments) {
        try (var context = SpringApplication.run(SpringAiNamed.class, arguments)) {
            var registry = context.getBean(ObservationRegistry.class);
            var office = new Office(context.getBean(ChatClient.Builder.class), (name, work) -> agent(registry, name, work));
            System.out.println(office.answer());
        }
    }
}
