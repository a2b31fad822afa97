package office;

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.util.Map;
import java.util.function.BiFunction;
import java.util.function.Supplier;
import org.springframework.ai.chat.client.ChatClient;
import org.springframework.ai.tool.ToolCallback;
import org.springframework.ai.tool.function.FunctionToolCallback;
import tools.jackson.databind.json.JsonMapper;

/** The story with Spring AI, as the recorder tells it: the concierge asks the other two, which are tools. */
class Office {
    record Vessel(String name) {}

    record Task(String task) {}

    static class RegisterUnavailable extends RuntimeException {
        RegisterUnavailable(String said) {
            super(said);
        }
    }

    @SuppressWarnings("unchecked")
    private static final Map<String, Object> STORY =
            JsonMapper.shared().readValue(System.getenv("SCENARIO_STORY"), Map.class);

    private final ChatClient.Builder builder;
    private final BiFunction<String, Supplier<String>, String> around;

    /** @param around runs the work of the agent of a name */
    Office(ChatClient.Builder builder, BiFunction<String, Supplier<String>, String> around) {
        this.builder = builder;
        this.around = around;
    }

    String answer() {
        ToolCallback lookUp = FunctionToolCallback.builder(said("tool"), (Vessel vessel) -> lookUp(vessel.name()))
                .description(said("toolPurpose"))
                .inputType(Vessel.class)
                .build();
        ToolCallback registrar = asking("registrar", lookUp);
        ToolCallback purser = asking("purser");
        return ask("concierge", said("question"), registrar, purser);
    }

    private ToolCallback asking(String agent, ToolCallback... tools) {
        return FunctionToolCallback.builder("ask_" + agent, (Task task) -> ask(agent, task.task(), tools))
                .description(of("purpose", agent))
                .inputType(Task.class)
                .build();
    }

    private String ask(String agent, String task, ToolCallback... tools) {
        return around.apply(agent, () -> builder.clone().build().prompt()
                .system(of("instructions", agent))
                .user(task)
                .toolCallbacks(tools)
                .call()
                .content());
    }

    private static String lookUp(String name) {
        String office = System.getenv("OFFICE_URL").replaceAll("/v1$", "");
        String body = JsonMapper.shared().writeValueAsString(Map.of("name", name));
        HttpRequest request = HttpRequest.newBuilder(URI.create(office + "/tools/" + said("tool")))
                .POST(HttpRequest.BodyPublishers.ofString(body))
                .build();
        try {
            var answer = HttpClient.newHttpClient().send(request, BodyHandlers.ofString());
            if (answer.statusCode() != 200) {
                throw new RegisterUnavailable(answer.body());
            }
            return answer.body();
        } catch (IOException | InterruptedException broken) {
            throw new IllegalStateException(broken);
        }
    }

    private static String said(String what) {
        return (String) STORY.get(what);
    }

    private static String of(String what, String agent) {
        return (String) ((Map<?, ?>) STORY.get(what)).get(agent);
    }
}
