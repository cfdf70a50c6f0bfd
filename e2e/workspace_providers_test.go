package e2e

import (
	"io"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// TestWorkspaceAtEveryProvider verifies that a sandbox on each provider has exactly the files
// from the previous provider's sandbox, and that its own changes are committed.
//
//suite:part workspaces full
func TestWorkspaceAtEveryProvider(t *testing.T) {
	lab := startDocker(t)
	a := startServer(t, t.TempDir(), "--config", writeConfig(t, "metrics: {trial: 0s}\n"))
	b := startServer(t, t.TempDir(), "--config", writeConfig(t, "pool: {size: -1}\nmetrics: {trial: 0s}\n"))
	a.configureTemporarily(t, "docker", map[string]any{"host": lab.host, "image": lab.image, "runtime": "runc", "pull": "never"})
	a.configureTemporarily(t, "local", map[string]any{"accept_no_isolation": true})
	a.configureTemporarily(t, "ssh", behindSSH(t))
	a.configureTemporarily(t, "e2b", cloudOf(t, b))
	svc, ctx := a.client(), t.Context()
	if _, err := svc.CreateWorkspace(ctx, "data"); err != nil {
		t.Fatal(err)
	}
	// in runs a script in a new sandbox on a provider, and verifies that the server reports the
	// provider.
	in := func(provider, script string) string {
		t.Helper()
		box, err := svc.Create(ctx, brig.Spec{
			Placement: brig.Placement{Provider: provider, Only: true}, TTL: time.Minute,
			Workspace: brig.WorkspaceUse{Name: "data", Mode: brig.WorkspaceDirect},
		})
		if err != nil {
			t.Fatalf("at %s: %v", provider, err)
		}
		if box.Route.Provider != provider {
			t.Errorf("it is at %+v, not at %s", box.Route, provider)
		}
		res, err := svc.Exec(ctx, box.Spec.Name, brig.Command{Shell: script}, brig.IO{})
		if err != nil || res.ExitCode != 0 {
			t.Fatalf("at %s: %v, %+v", provider, err, res)
		}
		if _, err := svc.Stop(ctx, box.Spec.Name, 5*time.Second); err != nil {
			t.Fatalf("stop at %s: %v", provider, err)
		}
		if err := svc.Remove(ctx, box.Spec.Name); err != nil {
			t.Error(err)
		}
		return string(res.Stdout.Head)
	}
	want := in(here, makeTree+sumTree)
	for i, provider := range []string{"docker", "local", "ssh", here, "e2b", "local", "docker", "e2b", "ssh", here} {
		if got := in(provider, sumTree); got != want {
			t.Errorf("at %s there is\n%s, want\n%s", provider, got, want)
		}
		want = in(provider, "echo "+provider+" >> src/log; chmod 640 src/log; "+sumTree)
		vs, err := svc.WorkspaceVersions(ctx, "data")
		if err != nil || len(vs) != i+2 {
			t.Errorf("after %s there are %d versions, %v", provider, len(vs), err)
		}
	}
	_, r, err := svc.ReadWorkspaceFile(ctx, "data", 0, "/workspace/src/log")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if b, err := io.ReadAll(r); err != nil || string(b) != "docker\nlocal\nssh\ngvisor\ne2b\nlocal\ndocker\ne2b\nssh\ngvisor\n" {
		t.Errorf("what they wrote is %q, %v", b, err)
	}
}
