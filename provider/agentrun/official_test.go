package agentrun_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/brig-run/brig/internal/testenv"
	"github.com/brig-run/brig/provider/agentrun"
	"github.com/brig-run/brig/provider/agentrun/agentruntest"
)

// TestDoubleAcceptsOfficialClient verifies that the double accepts the requests of Alibaba
// Cloud's own client library, including query and token, and rejects requests
// that are signed with another secret. The other tests therefore use the
// service's protocol, and not our interpretation of the protocol. The library
// is in a separate module, tools/agentrun.
func TestDoubleAcceptsOfficialClient(t *testing.T) {
	binary := testenv.Bin(t, "test/agentrun-client")
	w := newWorld(t, func(c *agentrun.Config, o *agentruntest.Options) { c.SecurityToken, o.Token = "token", "token" })
	at := strings.TrimPrefix(w.url, "http://")
	out, err := exec.Command(binary, at, keyID, secret, "token").CombinedOutput()
	if err != nil {
		t.Fatalf("the official client: %v: %s", err, out)
	}
	for _, want := range []string{"ListTemplates {", "CreateTemplate {", `GetTemplate {`, "DeleteTemplate {", `"templateName":"official"`, `"code":"SUCCESS"`} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the official client saw no %s:\n%s", want, out)
		}
	}
	if out, err := exec.Command(binary, at, keyID, "another", "token").CombinedOutput(); err == nil || !strings.Contains(string(out), "SignatureDoesNotMatch") {
		t.Errorf("another secret is taken: %v: %s", err, out)
	}
}
