package e2e

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/brig-run/brig"
)

// TestSandboxEndsWithProgram verifies that a running command or code returns one result when its
// sandbox ends, with the output so far and the reason, as a response and as a stream of events.
//
//suite:part core
func TestSandboxEndsWithProgram(t *testing.T) {
	s := stopServer(t, startServer(t, dataDir(t), "--pool", "0"))
	c := s.client()
	const grow = "print('before', flush=True)\nx = []\nwhile True: x.append(bytearray(b'x' * 5000000))"
	const wait = "print('before', flush=True)\nimport time\nwhile True: time.sleep(1)"
	for _, end := range []struct {
		what   string
		code   string
		reason brig.ExitReason
		do     func(ctx context.Context, name string) error
	}{
		{what: "memory", code: grow, reason: brig.OutOfMem},
		{what: "kill", code: wait, reason: brig.Killed, do: func(ctx context.Context, name string) error { _, err := c.Kill(ctx, name); return err }},
		{what: "stop", code: wait, reason: brig.Stopped, do: func(ctx context.Context, name string) error { _, err := c.Stop(ctx, name, 0); return err }},
	} {
		for _, language := range []brig.Language{"", brig.Python} {
			t.Run(end.what+"/"+string(language), func(t *testing.T) {
				ctx := t.Context()
				name := strings.TrimSuffix(end.what+"-"+string(language), "-")
				if _, err := c.Create(ctx, brig.Spec{Name: name, TTL: 2 * promptTimeout, Limits: brig.Limits{Memory: 256 * brig.MiB}}); err != nil {
					t.Fatal(err)
				}
				var out bytes.Buffer
				started := make(chan struct{}, 1)
				event := func(p []byte) {
					if out.Write(p); strings.Contains(out.String(), "before") {
						select {
						case started <- struct{}{}:
						default:
						}
					}
				}
				ended := make(chan error, 1)
				go func() {
					<-started
					if end.do != nil {
						ended <- end.do(ctx, name)
						return
					}
					ended <- nil
				}()
				if language == "" {
					res, err := c.Exec(ctx, name, brig.Command{Argv: []string{"python3", "-c", end.code}, Timeout: promptTimeout}, brig.IO{Stdout: eventWriter(event)})
					if err != nil || res.SandboxEnded != end.reason || res.ExitCode != 137 || res.Signal != "SIGKILL" || !res.Done || res.OOMKilled != (end.reason == brig.OutOfMem) || out.String() != "before\n" {
						t.Errorf("%+v, %v, %q", res, err, &out)
					}
				} else {
					res, err := c.RunCode(ctx, name, brig.Code{Source: end.code, Timeout: promptTimeout}, func(ev brig.CodeEvent) error {
						event(ev.Stdout)
						return nil
					})
					if err != nil || res.SandboxEnded != end.reason || !res.Lost || res.Error == nil || res.OOMKilled != (end.reason == brig.OutOfMem) || out.String() != "before\n" || string(res.Stdout.Head) != "before\n" {
						t.Errorf("%+v, %v, %q", res, err, &out)
					}
				}
				if err := <-ended; err != nil {
					t.Error(err)
				}
				if box, err := c.Get(ctx, name); err != nil || box.Exit == nil || box.Exit.Reason != end.reason {
					t.Errorf("the sandbox has %+v, %v", box, err)
				}
			})
		}
	}
	if _, err := c.Create(t.Context(), brig.Spec{Name: "mcp", TTL: 2 * promptTimeout, Limits: brig.Limits{Memory: 256 * brig.MiB}}); err != nil {
		t.Fatal(err)
	}
	if got := s.tool("run_code", map[string]any{"code": grow, "sandbox": "mcp"}); !strings.Contains(got, "before") || !strings.Contains(got, "memory") {
		t.Errorf("MCP: %s", got)
	}
}

// eventWriter is an io.Writer that calls a function.
type eventWriter func([]byte)

func (w eventWriter) Write(p []byte) (int, error) {
	w(p)
	return len(p), nil
}
