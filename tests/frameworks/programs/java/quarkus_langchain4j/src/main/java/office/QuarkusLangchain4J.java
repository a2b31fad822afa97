package office;

import dev.langchain4j.agent.tool.Tool;
import dev.langchain4j.service.SystemMessage;
import dev.langchain4j.service.UserMessage;
import dev.langchain4j.service.V;
import io.quarkiverse.langchain4j.RegisterAiService;
import io.quarkiverse.langchain4j.ToolBox;
import io.quarkus.runtime.QuarkusApplication;
import io.quarkus.runtime.annotations.QuarkusMain;
import jakarta.enterprise.context.ApplicationScoped;
import jakarta.inject.Inject;

/** LangChain4j under Quarkus, its own spans; texts switched on in application.properties. */
@QuarkusMain
public class QuarkusLangchain4J implements QuarkusApplication {
    // The story.

    @Inject
    Concierge concierge;

    @Override
    public int run(String... arguments) {
        System.out.println(concierge.answer(Story.instructions("concierge"), Story.of("question")));
        return 0;
    }

    @ApplicationScoped
    @RegisterAiService
    interface Concierge {
        @SystemMessage("{instructions}")
        @ToolBox(Colleagues.class)
        String answer(@V("instructions") String instructions, @UserMessage String task);
    }

    @ApplicationScoped
    @RegisterAiService
    interface Registrar {
        @SystemMessage("{instructions}")
        @ToolBox(Register.class)
        String answer(@V("instructions") String instructions, @UserMessage String task);
    }

    @ApplicationScoped
    @RegisterAiService
    interface Purser {
        @SystemMessage("{instructions}")
        String answer(@V("instructions") String instructions, @UserMessage String task);
    }

    @ApplicationScoped
    public static class Colleagues {
        @Inject
        Registrar registrar;

        @Inject
        Purser purser;

        @Tool(name = "ask_registrar", value = "Looks vessels up in the ship register.")
        public String askRegistrar(String task) {
            return registrar.answer(Story.instructions("registrar"), task);
        }

        @Tool(name = "ask_purser", value = "Works out amounts of money.")
        public String askPurser(String task) {
            return purser.answer(Story.instructions("purser"), task);
        }
    }

    @ApplicationScoped
    public static class Register {
        @Tool(name = "look_up_vessel", value = "Look a vessel up in the ship register: how many seats it has.")
        public String lookUpVessel(String name) {
            return Story.lookUp(name);
        }
    }
}
