package e2e

import (
	"context"
	"encoding/json"
	"io"
	"net/http"

	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/client"
	"github.com/brig-run/brig/internal/attack"
)

// revokeTimeout is the time within which all requests of a key must end after its revocation.
const revokeTimeout = time.Second

// clientWith returns a client with the given key.
func (s *server) clientWith(key string) *client.Client {
	s.t.Helper()
	c, err := client.New(client.Options{URL: s.url, Key: key})
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// asE2B sends a request to the E2B API, with a key or a sandbox's token.
func (s *server) asE2B(ctx context.Context, method, path, body string, header ...string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return http.DefaultClient.Do(req)
}

// TestRevocationEndsRunningRequests verifies that all running requests of a key
// end within a second of its revocation. They include executions, terminals,
// ports, watches, and streams of E2B clients with a token that was issued to
// the key. Requests of another key must continue.
//
//suite:part hostile
func TestRevocationEndsRunningRequests(t *testing.T) {
	needRoot(t)
	s := startServer(t, dataDir(t))
	admin, ctx := s.client(), t.Context()
	if _, err := admin.CreateTenant(ctx, brig.Tenant{Name: "acme"}); err != nil {
		t.Fatal(err)
	}
	mint := func(kind brig.KeyKind) *brig.NewKey {
		k, err := admin.CreateKey(ctx, brig.KeySpec{Name: "x", Tenant: "acme", Role: brig.Member, Kind: kind})
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	native, e2b, other := mint(brig.NativeKey), mint(brig.E2BKey), mint(brig.NativeKey)
	c, o := s.clientWith(native.Secret), s.clientWith(other.Secret)
	if _, err := c.Create(ctx, brig.Spec{Name: "box", TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	started := make(chan struct{}, 8)
	ended := map[string]chan error{}
	goOn := func(what string, f func() error) {
		done := make(chan error, 1)
		ended[what] = done
		go func() { done <- f() }()
	}
	streams := brig.IO{Started: func(string) { started <- struct{}{} }, Stdout: io.Discard}
	sleep := brig.Command{Argv: []string{"sleep", "600"}, Timeout: time.Hour}
	goOn("exec", func() error { _, err := c.Exec(ctx, "box", sleep, streams); return err })
	goOn("run", func() error {
		_, err := c.Run(ctx, brig.Program{Command: sleep.Argv, Timeout: time.Hour}, streams)
		return err
	})
	p, err := c.Processes("box").Start(ctx, brig.ProcessSpec{Command: brig.Command{Argv: []string{"sh"}}, Terminal: &brig.Terminal{Columns: 80, Rows: 24}})
	if err != nil {
		t.Fatal(err)
	}
	goOn("terminal", func() error {
		return c.Processes("box").Attach(ctx, p.PID, 0, func(brig.ProcessEvent) error { return nil })
	})
	goOn("watch", func() error {
		return c.Files("box").Watch(ctx, brig.Path{Name: "/workspace"}, false, func(brig.FileChange) error { return nil })
	})
	if _, err := c.Processes("box").Start(ctx, brig.ProcessSpec{Command: brig.Command{Argv: []string{"python3", "-m", "http.server", "8000"}}}); err != nil {
		t.Fatal(err)
	}
	conn, err := c.Dial(ctx, "box", 8000)
	for deadline := time.Now().Add(2 * promptTimeout); err != nil && time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		conn, err = c.Dial(ctx, "box", 8000)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	goOn("port", func() error { _, err := conn.Read(make([]byte, 1)); return err })
	token, box := s.e2bBox(t, e2b.Secret)
	goOn("E2B's process", func() error {
		start := `{"process":{"cmd":"sleep","args":["600"]}}`
		body := string([]byte{0, 0, 0, 0, byte(len(start))}) + start
		resp, err := s.asE2B(ctx, "POST", "/process.Process/Start", body, "Content-Type", "application/connect+json",
			"Connect-Protocol-Version", "1", "E2b-Sandbox-Id", box, "E2b-Sandbox-Port", "49983", "X-Access-Token", token)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if _, err := io.ReadFull(resp.Body, make([]byte, 5)); err != nil {
			return err
		}
		started <- struct{}{}
		_, err = io.Copy(io.Discard, resp.Body)
		return err
	})
	goesOn := make(chan error, 1)
	go func() { _, err := o.Exec(ctx, "box", sleep, streams); goesOn <- err }()
	for range 4 {
		select {
		case <-started:
		case <-time.After(2 * promptTimeout):
			t.Fatal("not everything began")
		}
	}
	time.Sleep(1500 * time.Millisecond) // longer than the server caches a key
	for what, done := range ended {
		select {
		case err := <-done:
			t.Fatalf("%s ended by itself: %v", what, err)
		default:
		}
	}
	for _, k := range []*brig.NewKey{native, e2b} {
		if err := admin.RevokeKey(ctx, k.ID); err != nil {
			t.Fatal(err)
		}
	}
	at := time.Now()
	late := time.After(revokeTimeout + promptTimeout) // the host may be busy; the test logs the duration
	for what, done := range ended {
		select {
		case <-done:
			t.Logf("%s ended after %v", what, time.Since(at).Round(time.Millisecond))
			attack.RecordCase("SEC-07", what+" with a key that is revoked", false)
		case <-late:
			attack.RecordCase("SEC-07", what+" with a key that is revoked", true)
			t.Fatalf("%s goes on", what)
		}
	}
	if _, err := c.Get(ctx, "box"); brig.KindOf(err) != brig.Unauthenticated {
		t.Errorf("a call with the revoked key: %v", err)
	}
	resp, err := s.asE2B(ctx, "GET", "/files?path=/etc/hostname", "", "E2b-Sandbox-Id", box, "E2b-Sandbox-Port", "49983", "X-Access-Token", token)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("with the token of a revoked key: %s", resp.Status)
	}
	select {
	case err := <-goesOn:
		t.Errorf("another key's execution ended: %v", err)
		attack.RecordMutant("SEC-07", "an execution with another key", "the revocation", false)
	default:
		attack.RecordMutant("SEC-07", "an execution with another key", "the revocation", true)
	}
}

// e2bBox creates a sandbox as E2B clients do, and returns its token and ID.
func (s *server) e2bBox(t *testing.T, key string) (token, id string) {
	t.Helper()
	resp, err := s.asE2B(t.Context(), "POST", "/sandboxes", `{"templateID":"base","timeout":600}`, "X-API-KEY", key)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var made struct{ SandboxID, EnvdAccessToken string }
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusCreated {
		t.Fatalf("%s: %s, %v", resp.Status, b, err)
	}
	if err := json.Unmarshal(b, &made); err != nil {
		t.Fatal(err)
	}
	return made.EnvdAccessToken, made.SandboxID
}
