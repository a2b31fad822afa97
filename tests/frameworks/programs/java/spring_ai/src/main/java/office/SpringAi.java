package office;

import org.springframework.ai.chat.client.ChatClient;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.SpringBootConfiguration;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;

/** Spring AI, its own observations through Micrometer and OpenTelemetry; set up in application.properties. */
@SpringBootConfiguration
@EnableAutoConfiguration // without a scan, which would find the beans of the program beside it
public class SpringAi {
    // The story.
    public static void main(String[] arguments) {
        try (var context = SpringApplication.run(SpringAi.class, arguments)) {
            System.out.println(new Office(context.getBean(ChatClient.Builder.class), (name, work) -> work.get()).answer());
        }
    }
}
