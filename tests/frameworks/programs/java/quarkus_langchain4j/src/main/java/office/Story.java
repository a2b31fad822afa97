package office;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.util.Map;

/** The story as the recorder tells it, and the register that the tool asks. */
class Story {
    static class RegisterUnavailable extends RuntimeException {
        RegisterUnavailable(String said) {
            super(said);
        }
    }

    private static final ObjectMapper JSON = new ObjectMapper();

    static String of(String what) {
        return told().get(what).asText();
    }

    static String instructions(String agent) {
        return told().get("instructions").get(agent).asText();
    }

    static String lookUp(String name) {
        String office = System.getenv("OFFICE_URL").replaceAll("/v1$", "");
        try {
            HttpRequest request = HttpRequest.newBuilder(URI.create(office + "/tools/" + of("tool")))
                    .POST(HttpRequest.BodyPublishers.ofString(JSON.writeValueAsString(Map.of("name", name))))
                    .build();
            var answer = HttpClient.newHttpClient().send(request, BodyHandlers.ofString());
            if (answer.statusCode() != 200) {
                throw new RegisterUnavailable(answer.body());
            }
            return answer.body();
        } catch (IOException | InterruptedException broken) {
            throw new IllegalStateException(broken);
        }
    }

    private static JsonNode told() {
        try {
            return JSON.readTree(System.getenv("SCENARIO_STORY"));
        } catch (IOException broken) {
            throw new IllegalStateException(broken);
        }
    }
}
