// Package kit holds the story as the recorder tells it, the tool that asks the register, and the exporter.
package kit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
)

var Story = func() (story struct {
	Question     string
	Instructions map[string]string
	Purpose      map[string]string
	Model        string
	Tool         string
	ToolPurpose  string
}) {
	if err := json.Unmarshal([]byte(os.Getenv("SCENARIO_STORY")), &story); err != nil {
		panic(err)
	}
	return story
}()

// LookUpVessel asks the register; an error says that it did not answer.
func LookUpVessel(ctx context.Context, name string) (string, error) {
	said, _ := json.Marshal(map[string]string{"name": name})
	url := strings.TrimSuffix(os.Getenv("OFFICE_URL"), "/v1") + "/tools/" + Story.Tool
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(said))
	if err != nil {
		return "", err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	found, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = errors.New(string(found))
	}
	return string(found), err
}
