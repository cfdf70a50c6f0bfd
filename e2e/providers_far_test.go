package e2e

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/provider/agentrun"
	"github.com/brig-run/brig/provider/agentrun/agentruntest"
	"github.com/brig-run/brig/provider/execman"
)

// TestRemoteProviders verifies that a server sends programs to another server, and to the test
// double of AgentRun, as the administrator configured, and that the response contains the
// provider. The server rejects unsupported requests before it sends data to the provider.
//
//suite:part providers
func TestRemoteProviders(t *testing.T) {
	far := execmanServer(t, "timeout: 20s").at
	const id, secret = "LTAI5tDouble", "a secret of the double"
	dir := t.TempDir()
	double := httptest.NewServer(agentruntest.New(agentruntest.Options{
		ID: id, Secret: secret, Region: "cn-hangzhou",
		Machine: func(string) (agentruntest.Machine, error) { return agentruntest.NewLocal(dir) },
	}))
	defer double.Close()
	c := stopServer(t, startServer(t, t.TempDir())).client()
	for name, config := range map[string]string{
		execman.Name: fmt.Sprintf(`{"endpoint":"http://%s"}`, far),
		agentrun.Name: fmt.Sprintf(`{"access_key_id":%q,"access_key_secret":%q,"account_id":"1","control_endpoint":%q,"data_endpoint":%q,"allow_private":true}`,
			id, secret, double.URL, double.URL),
	} {
		if _, err := c.ConfigureProvider(t.Context(), brig.ProviderConfig{ID: name, Config: json.RawMessage(config)}); err != nil {
			t.Fatalf("configure %s: %v", name, err)
		}
		test, err := c.TestProvider(t.Context(), brig.ProviderConfig{ID: name, Config: json.RawMessage(config)})
		if err != nil || !test.OK {
			t.Errorf("test %s: %+v, %v", name, test, err)
		}
		at := brig.Placement{Provider: name, Only: true}
		o, err := c.Run(t.Context(), brig.Program{
			Language: brig.Python, Code: "def main(n):\n    print('there')\n    return n * 7\n", Arguments: json.RawMessage(`{"n":6}`), Placement: at,
		}, brig.IO{})
		if err != nil || string(o.Value) != "42" || string(o.Stdout.Head) != "there\n" || o.Route.Provider != name {
			t.Errorf("run at %s: %+v, %v", name, o, err)
		}
		o, err = c.Run(t.Context(), brig.Program{Language: brig.TypeScript, Code: "const n: number = 6; console.log(n * 7)", Placement: at}, brig.IO{})
		if err != nil || string(o.Stdout.Head) != "42\n" || o.ExitCode != 0 {
			t.Errorf("TypeScript at %s: %+v, %v", name, o, err)
		}
		_, err = c.Run(t.Context(), brig.Program{Command: []string{"ls"}, Placement: at}, brig.IO{})
		if apiErr := brig.AsError(err); apiErr == nil || apiErr.Kind != brig.FailedPrecondition || apiErr.Field != "command" {
			t.Errorf("a command at %s: %+v", name, apiErr)
		}
		_, err = c.Create(t.Context(), brig.Spec{Placement: at})
		if err == nil {
			t.Errorf("%s made a sandbox", name)
		}
	}
	list, err := c.Providers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(list)
	if err != nil || strings.Contains(string(b), secret) || !strings.Contains(string(b), "****uble") {
		t.Errorf("the secret is told, or not shown by its end: %s, %v", b, err)
	}
	// The provider test detects a wrong endpoint and reports the reason.
	test, err := c.TestProvider(t.Context(), brig.ProviderConfig{ID: execman.Name, Config: json.RawMessage(`{"endpoint":"http://127.0.0.1:1"}`)})
	if err == nil && test.OK {
		t.Errorf("a wrong endpoint passes the test: %+v", test)
	}
}
