package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/audit"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/internal/seal"
	"github.com/brig-run/brig/store/mem"
)

// A database row that was moved, restored from an older version, or encrypted
// with another key cannot be decrypted.
func TestMovedSecretRowsCannotBeDecrypted(t *testing.T) {
	h := newFixture(t, nil)
	ctx := withRole(t, brig.Operator)
	put := func(name, value string) {
		t.Helper()
		if _, err := h.PutSecret(ctx, brig.SecretChange{Name: name, Value: []byte(value)}); err != nil {
			t.Fatal(err)
		}
	}
	put("mine", "one")
	put("other", "two")
	run := func(name string) error {
		_, err := h.Run(ctx, brig.Program{Command: []string{"env", "V"}, Secrets: []brig.SecretUse{{Name: name, Env: "V"}}}, brig.IO{})
		return err
	}
	if err := run("mine"); err != nil {
		t.Fatal(err)
	}
	row := func(tenant, name string) *brig.SealedSecret {
		t.Helper()
		s, err := h.store.GetSecret(ctx, tenant, name)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	first, good := row("acme", "mine"), row("acme", "mine")
	put("mine", "three")
	for what, change := range map[string]func(s *brig.SealedSecret){
		"another name":   func(s *brig.SealedSecret) { s.Sealed = row("acme", "other").Sealed },
		"an older value": func(s *brig.SealedSecret) { s.Sealed = first.Sealed },
		"a bit":          func(s *brig.SealedSecret) { s.Sealed[len(s.Sealed)-1] ^= 1 },
		"another key":    func(s *brig.SealedSecret) { s.Key = "k0" },
	} {
		s := row("acme", "mine")
		good = row("acme", "mine")
		change(s)
		if err := h.store.PutSecret(ctx, s, s.Version); err != nil {
			t.Fatal(err)
		}
		if err := run("mine"); brig.KindOf(err) != brig.FailedPrecondition {
			t.Errorf("%s: %v", what, err)
		}
		if err := h.store.PutSecret(ctx, good, good.Version); err != nil {
			t.Fatal(err)
		}
		if err := run("mine"); err != nil { // the control: the original row can be decrypted
			t.Errorf("after %s: %v", what, err)
		}
	}
	// Another tenant's row of the same name and version.
	rival := brig.WithActor(t.Context(), brig.Actor{Name: "eve", Tenant: "rival", Role: brig.Operator})
	for range good.Version {
		if _, err := h.PutSecret(rival, brig.SecretChange{Name: "mine", Value: []byte("rival's")}); err != nil {
			t.Fatal(err)
		}
	}
	stolen := row("acme", "mine")
	stolen.Tenant = "rival"
	if err := h.store.PutSecret(ctx, stolen, stolen.Version); err != nil {
		t.Fatal(err)
	}
	_, err := h.Run(rival, brig.Program{Command: []string{"env", "V"}, Secrets: []brig.SecretUse{{Name: "mine", Env: "V"}}}, brig.IO{})
	if brig.KindOf(err) != brig.FailedPrecondition {
		t.Errorf("another tenant's row: %v", err)
	}
}

// A server with another encryption key reports that it cannot decrypt a secret, and
// does not adopt the key of the secret as its own.
func TestWrongMasterKeyCannotDecryptSecret(t *testing.T) {
	h := newFixture(t, nil)
	ctx := withRole(t, brig.Operator)
	if _, err := h.PutSecret(ctx, brig.SecretChange{Name: "a", Value: []byte("value")}); err != nil {
		t.Fatal(err)
	}
	h.Options.Keys = newKeyring(t)
	_, err := h.Run(ctx, brig.Program{Command: []string{"env", "A"}, Secrets: []brig.SecretUse{{Name: "a"}}}, brig.IO{})
	if brig.KindOf(err) != brig.FailedPrecondition || !strings.Contains(brig.AsError(err).Message, "a key that this server does not have") {
		t.Errorf("%v", err)
	}
	fixed, err := seal.Open(ctx, seal.FixedKeys{bytes.Repeat([]byte{1}, seal.KeySize)})
	if err != nil {
		t.Fatal(err)
	}
	h.Options.Keys = fixed
	if _, err := h.RotateKey(ctx); brig.KindOf(err) != brig.FailedPrecondition || brig.AsError(err).Hint == "" {
		t.Errorf("RotateKey: %v", err)
	}
}

// A secret that is set during a key rotation can be decrypted after the rotation.
func TestSecretSetDuringRotationStaysReadable(t *testing.T) {
	h := newFixture(t, nil)
	ctx := withRole(t, brig.Operator)
	done := make(chan error, 1)
	go func() {
		for i := range 50 {
			if _, err := h.PutSecret(ctx, brig.SecretChange{Name: "s" + string(rune('a'+i%5)), Value: []byte("value")}); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for range 10 {
		if _, err := h.RotateKey(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	all, err := h.store.AllSecrets(ctx)
	if err != nil || len(all) != 5 {
		t.Fatalf("%d secrets, %v", len(all), err)
	}
	for _, s := range all {
		if !h.Options.Keys.HasKey(s.Key) {
			t.Errorf("%s was sealed with a key that is gone", s.Name)
		}
	}
}

// The log has one line for each run, with all fields of requirement H04 and the
// same hash as the audit log.
func TestRunIsLogged(t *testing.T) {
	var out lockedBuffer
	h := newFixture(t, func(o *engine.Options) {
		o.Log, o.Region = slog.New(slog.NewJSONHandler(&out, nil)), "eu-1"
	})
	ctx := withRole(t, brig.Operator)
	o, err := h.Run(ctx, brig.Program{Command: []string{"exit", "3"}, Labels: map[string]string{"team": "a"}}, brig.IO{})
	if err != nil {
		t.Fatal(err)
	}
	h.Close() // wait for the line that is written in the background
	var line map[string]any
	for text := range strings.SplitSeq(out.String(), "\n") {
		var l map[string]any
		if json.Unmarshal([]byte(text), &l) == nil && l["msg"] == "run" {
			if line != nil {
				t.Error("there are two lines")
			}
			line = l
		}
	}
	for _, field := range []string{"timestamp", "tenant_id", "provider", "operation", "instance_id", "language", "code_hash",
		"duration_ms", "status", "exit_code", "memory_used_mb", "region"} {
		if _, ok := line[field]; !ok {
			t.Errorf("the line has no %s: %v", field, line)
		}
	}
	hash, _ := line["code_hash"].(string)
	if line["tenant_id"] != "acme" || line["status"] != "error" || line["exit_code"] != 3.0 || line["region"] != "eu-1" || len(hash) != 71 {
		t.Errorf("the line is %v", line)
	}
	lines, err := h.store.Audit(ctx, "acme", brig.AuditQuery{Labels: map[string]string{"team": "a"}})
	if err != nil || len(lines) != 2 {
		t.Fatalf("%+v, %v", lines, err)
	}
	for _, l := range lines {
		if l.Detail[brig.DetailImage] != "sha256:host" || l.Detail[brig.DetailName] != o.Sandbox {
			t.Errorf("%+v", l)
		}
	}
	if lines[1].Detail[brig.DetailExit] != "3" || lines[1].Detail[brig.DetailDuration] == "" {
		t.Errorf("the outcome is %+v", lines[1])
	}
}

// The audit events of calls of all kinds form one chain.
func TestAuditEventsFormAChain(t *testing.T) {
	h := newFixture(t, nil)
	ctx := withRole(t, brig.Operator)
	for range 3 {
		if _, err := h.Run(ctx, brig.Program{Command: []string{"echo", "hi"}}, brig.IO{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := h.Run(withRole(t, brig.Viewer), brig.Program{}, brig.IO{}); brig.KindOf(err) != brig.PermissionDenied {
		t.Fatal(err)
	}
	_, _ = h.Run(context.Background(), brig.Program{}, brig.IO{}) // a call without an actor, whose event is in another chain
	p, err := h.Audit(ctx, brig.AuditQuery{})
	if err != nil || len(p.Lines) != 7 || p.Next != 0 {
		t.Fatalf("%+v, %v", p, err)
	}
	var v audit.Verifier
	for _, l := range p.Lines {
		if err := v.Add(l); err != nil {
			t.Error(err)
		}
	}
	if err := v.End(&p.Head); err != nil {
		t.Error(err)
	}
}

// lockedBuffer is a buffer for concurrent writers.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// failingSecrets is a store that cannot read secrets while err is set.
type failingSecrets struct {
	brig.Store
	err error
}

func (s *failingSecrets) GetSecret(ctx context.Context, tenant, name string) (*brig.SealedSecret, error) {
	if s.err != nil {
		return nil, s.err
	}
	return s.Store.GetSecret(ctx, tenant, name)
}

// While the store cannot read a secret, the secret's hosts are unknown. It is then
// bound to all hosts and has no value. A removed secret is bound to no host.
func TestUnreadableSecretHasNoValue(t *testing.T) {
	store := &failingSecrets{Store: mem.New()}
	h := newFixture(t, func(o *engine.Options) { o.Store = store })
	ctx := withRole(t, brig.Operator)
	if _, err := h.PutSecret(ctx, brig.SecretChange{Name: "key", Hosts: []string{"api.example.com"}, Exclusive: new(true), Value: []byte("a long enough value")}); err != nil {
		t.Fatal(err)
	}
	rec := &brig.Record{Sandbox: brig.Sandbox{ID: "a", Tenant: "acme", Spec: brig.Spec{Secrets: []brig.SecretUse{{Name: "key"}}}}}
	for _, c := range []struct {
		err   error
		hosts string
	}{
		{nil, "api.example.com"},
		{errors.New("disk I/O error"), "*"},
		{brig.Errorf(brig.NotFound, "no such secret"), ""},
	} {
		store.err = c.err
		hosts := ""
		for _, s := range h.Brokered(rec) {
			hosts += strings.Join(s.Hosts, ",")
			if value, err := s.Value(ctx); (err == nil) != (c.err == nil) || err != nil && value != nil {
				t.Errorf("%v: value %q, %v", c.err, value, err)
			}
		}
		if hosts != c.hosts {
			t.Errorf("%v: bound to %q, want %q", c.err, hosts, c.hosts)
		}
	}
}

// A sandbox keeps the hosts and places that its secret had when the sandbox was created. It does
// not get hosts that are added later, even after a pause, in a copy or after a restart of the
// server. It loses hosts that are removed.
func TestWidenedSecretDoesNotReachEarlierSandboxes(t *testing.T) {
	h := newFixture(t, nil)
	ctx := withRole(t, brig.Operator)
	put := func(value string, plain bool, hosts ...string) {
		t.Helper()
		c := brig.SecretChange{Name: "key", Hosts: hosts, Plain: &plain, Reveal: len(hosts) == 0}
		if len(hosts) == 0 {
			c.Hosts, c.Plain = []string{}, nil
		}
		if value != "" {
			c.Value = []byte(value)
		}
		if _, err := h.PutSecret(ctx, c); err != nil {
			t.Fatal(err)
		}
	}
	box := func(name string) {
		h.createWithNoteFile(t, ctx, brig.Spec{Name: name, Pausable: true, Secrets: []brig.SecretUse{{Name: "key"}}})
	}
	// bound returns the hosts of a sandbox's secret, with a mark if plain HTTP is
	// allowed, and the secret's value.
	bound := func(svc *engine.Engine, name string) (hosts, value string) {
		t.Helper()
		rec, err := h.store.Get(ctx, "acme", name)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range svc.Brokered(rec)[:min(1, len(svc.Brokered(rec)))] {
			hosts = strings.Join(s.Hosts, ",")
			if s.Plain {
				hosts += " plain"
			}
			b, err := s.Value(ctx)
			if err != nil {
				t.Fatal(err)
			}
			value = string(b)
		}
		return hosts, value
	}
	want := func(svc *engine.Engine, name, hosts, value string) {
		t.Helper()
		if h, v := bound(svc, name); h != hosts || v != value {
			t.Errorf("%s has %q for %q, want %q for %q", name, v, h, value, hosts)
		}
	}
	put("the first value", false, "a.test", "*.b.test")
	box("old")
	want(h.Engine, "old", "a.test,*.b.test", "the first value")
	put("the second value", true, "*.test")
	box("new")
	want(h.Engine, "new", "*.test plain", "the second value") // the control
	want(h.Engine, "old", "a.test,*.b.test", "the second value")
	if _, err := h.Pause(ctx, "old", brig.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Resume(ctx, "old"); err != nil {
		t.Fatal(err)
	}
	want(h.Engine, "old", "a.test,*.b.test", "the second value")
	if _, err := h.Fork(ctx, "old", brig.ForkSpec{Name: "copy"}); err != nil {
		t.Fatal(err)
	}
	want(h.Engine, "copy", "a.test,*.b.test", "the second value")
	put("", false, "x.b.test", "c.test")
	want(h.Engine, "old", "x.b.test", "the second value")
	want(h.Engine, "new", "x.b.test,c.test", "the second value")
	put("the third value", false)
	for _, name := range []string{"old", "copy"} {
		want(h.Engine, name, "a.test,*.b.test", "the third value")
		res, err := h.Exec(ctx, name, brig.Command{Argv: []string{"env", "KEY"}}, brig.IO{})
		if err != nil || !strings.HasPrefix(string(res.Stdout.Head), "brig-secret-") {
			t.Errorf("%s sees %+v, %v", name, res, err)
		}
	}
	box("later")
	want(h.Engine, "later", "", "") // the sandbox receives the value itself
	next := h.nextServer(t, func(o *engine.Options) { o.Keys = h.Options.Keys })
	want(next, "old", "a.test,*.b.test", "the third value")
}

// Earlier versions of Brig did not record Given. Their sandboxes get the secrets as they are at
// the start of the server.
func TestSandboxOfEarlierVersionGetsSecrets(t *testing.T) {
	h := newFixture(t, nil)
	ctx := withRole(t, brig.Operator)
	put := func(host string) {
		t.Helper()
		if _, err := h.PutSecret(ctx, brig.SecretChange{Name: "key", Value: []byte("the value"), Hosts: []string{host}}); err != nil {
			t.Fatal(err)
		}
	}
	put("a.test")
	h.createWithNoteFile(t, ctx, brig.Spec{Name: "old", Secrets: []brig.SecretUse{{Name: "key"}}})
	get := func() *brig.Record {
		t.Helper()
		rec, err := h.store.Get(ctx, "acme", "old")
		if err != nil {
			t.Fatal(err)
		}
		return rec
	}
	rec := get()
	rec.Given = nil
	if err := h.store.Put(ctx, rec); err != nil {
		t.Fatal(err)
	}
	next := h.nextServer(t, func(o *engine.Options) { o.Keys = h.Options.Keys })
	put("*.test")
	if list := next.Brokered(get()); len(list) != 1 || strings.Join(list[0].Hosts, ",") != "a.test" {
		t.Errorf("it has %+v", list)
	}
}
