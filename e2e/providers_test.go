package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/testenv"
	"github.com/brig-run/brig/provider/agentrun"
	"github.com/brig-run/brig/provider/agentrun/agentruntest"
	"github.com/brig-run/brig/provider/providertest"
	"github.com/brig-run/brig/provider/ssh/sshtest"
	"github.com/brig-run/brig/store/sqlite"
)

// manager is a server whose executor manager API serves as the provider of other servers.
type manager struct {
	*server
	dir, config, url string
}

// startManager starts a manager on an unused port.
func startManager(t *testing.T) *manager {
	t.Helper()
	at := fmt.Sprintf("127.0.0.1:%d", testenv.Port(t))
	m := &manager{dir: t.TempDir(), url: "http://" + at}
	m.config = writeConfig(t, "pool: {size: -1}\nmetrics: {trial: 0s}\nexecman: {listen: \""+at+"\", pool: 4}\n")
	m.restart(t)
	return m
}

// restart restarts the server.
func (m *manager) restart(t *testing.T) { m.server = startServer(t, m.dir, "--config", m.config) }

// configure configures a provider of the server, and fails the test on an error.
func (s *server) configure(id string, fields map[string]any) {
	s.t.Helper()
	raw, err := json.Marshal(fields)
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.client().ConfigureProvider(s.t.Context(), brig.ProviderConfig{ID: id, Config: raw}); err != nil {
		s.t.Fatal(err)
	}
}

const (
	here      = "gvisor"
	elsewhere = "self_managed"
)

// doublingProgram returns a program and its expected output.
func doublingProgram(n int) (p brig.Program, out string) {
	return brig.Program{Language: brig.Python, Code: fmt.Sprintf("import time\ntime.sleep(0.05)\nprint(%d * 2)", n), Timeout: time.Minute}, fmt.Sprintf("%d\n", n*2)
}

// runMany runs n programs, six at a time, verifies their results, and calls each with the route
// of each result.
func (s *server) runMany(n int, each func(i int, r brig.Route)) {
	s.t.Helper()
	svc := s.client()
	var next atomic.Int64
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			for i := int(next.Add(1)); i <= n; i = int(next.Add(1)) {
				p, want := doublingProgram(i)
				o, err := svc.Run(s.t.Context(), p, brig.IO{})
				if err != nil {
					s.t.Errorf("run %d: %v", i, err)
					continue
				}
				if got := string(o.Stdout.Head); got != want || o.ExitCode != 0 {
					s.t.Errorf("run %d: exit code %d, %q, want %q", i, o.ExitCode, got, want)
				}
				each(i, o.Route)
			}
		})
	}
	all.Wait()
}

// TestProviderFailover verifies that no program is lost when a provider crashes under load: the
// next provider runs its programs and all subsequent ones, and each result reports the provider.
// The crashed provider receives programs again when it is back.
//
//suite:part providers
func TestProviderFailover(t *testing.T) {
	needRoot(t)
	b := startManager(t)
	a := startServer(t, t.TempDir(), "--config", writeConfig(t, "pool: {size: 2}\nmetrics: {trial: 0s}\n"))
	a.configure(elsewhere, map[string]any{"endpoint": b.url, "pool_size": 6})
	if err := a.client().SetRouting(t.Context(), "", brig.Routing{Order: []string{elsewhere, here}}); err != nil {
		t.Fatal(err)
	}
	const runs = 60
	var mu sync.Mutex
	count, tried, done := map[string]int{}, 0, 0
	kill := sync.OnceFunc(func() { b.kill() })
	a.runMany(runs, func(i int, r brig.Route) {
		mu.Lock()
		defer mu.Unlock()
		count[r.Provider]++
		if done++; done == runs/4 {
			go kill()
		}
		if r.Provider == elsewhere {
			return
		}
		if !strings.HasPrefix(r.Reason, "fallback: "+elsewhere) {
			t.Errorf("run %d went to %s because of %q", i, r.Provider, r.Reason)
		}
		if len(r.Attempts) > 1 {
			t.Errorf("run %d was tried in vain more than once: %+v", i, r.Attempts)
		}
		for _, x := range r.Attempts {
			tried++
			if x.Provider != elsewhere || x.Message == "" || x.Code != brig.ConnectionFailed.Code() && x.Code != brig.Unavailable.Code() {
				t.Errorf("run %d: attempt %+v", i, x)
			}
		}
	})
	kill()
	if count[elsewhere] < runs/4 || count[here] == 0 || count[elsewhere]+count[here] != runs || tried == 0 {
		t.Errorf("%v of %d runs, %d attempts in vain", count, runs, tried)
	}
	t.Logf("%d runs: %v, %d attempts in vain", runs, count, tried)

	b.restart(t)
	begin := time.Now()
	for {
		p, _ := doublingProgram(1)
		o, err := a.client().Run(t.Context(), p, brig.IO{})
		if err != nil {
			t.Fatal(err)
		}
		if o.Route.Provider == elsewhere {
			break
		}
		if time.Since(begin) > 40*time.Second {
			t.Fatalf("traffic does not return: %+v", o.Route)
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Logf("traffic returned %v after the server did", time.Since(begin).Round(time.Millisecond))
}

// TestProgramsSurviveProviderSwitch verifies that no program fails while the active provider changes under
// load.
//
//suite:part providers full
func TestProgramsSurviveProviderSwitch(t *testing.T) {
	needRoot(t)
	b := startManager(t)
	a := startServer(t, t.TempDir(), "--config", writeConfig(t, "pool: {size: 3}\nmetrics: {trial: 0s}\n"))
	a.configure(elsewhere, map[string]any{"endpoint": b.url, "pool_size": 6})
	runs := 200
	if testenv.IsFull() {
		runs = 1000
	}
	var mu sync.Mutex
	count, done := map[string]int{}, 0
	a.runMany(runs, func(i int, r brig.Route) {
		mu.Lock()
		count[r.Provider]++
		done++
		now := done
		mu.Unlock()
		if len(r.Attempts) > 0 {
			t.Errorf("run %d was tried before: %+v", i, r)
		}
		for at, id := range map[int]string{runs / 3: elsewhere, runs * 2 / 3: here} {
			if now == at {
				if err := a.client().ActivateProvider(t.Context(), id); err != nil {
					t.Error(err)
				}
			}
		}
	})
	if count[here] < runs/2 || count[elsewhere] < runs/5 || count[here]+count[elsewhere] != runs {
		t.Errorf("%v of %d runs", count, runs)
	}
	t.Logf("%d runs: %v", runs, count)
}

// TestProvidersAgree verifies that programs have the same results on every provider of a server.
// As an administrator would, it configures, tests and removes each provider.
//
//suite:part providers full
func TestProvidersAgree(t *testing.T) {
	needRoot(t)
	b := startManager(t)
	a := startServer(t, t.TempDir(), "--config", writeConfig(t, "metrics: {trial: 0s}\n"))
	svc := a.client()
	for id, fields := range map[string]func(t *testing.T) map[string]any{
		here:      nil, // always configured
		elsewhere: func(*testing.T) map[string]any { return map[string]any{"endpoint": b.url} },
		"docker": func(t *testing.T) map[string]any {
			lab := startDocker(t)
			return map[string]any{"host": lab.host, "image": lab.image, "runtime": "runc", "pull": "never"}
		},
		"local": func(*testing.T) map[string]any { return map[string]any{"accept_no_isolation": true} },
		"ssh":   behindSSH,
		"e2b":   func(t *testing.T) map[string]any { return cloudOf(t, b.server) },
		agentrun.Name: func(t *testing.T) map[string]any {
			dir := t.TempDir()
			double := httptest.NewServer(agentruntest.New(agentruntest.Options{
				ID: "LTAI-e2e", Secret: "a secret of the double", Region: "cn-hangzhou",
				Machine: func(string) (agentruntest.Machine, error) { return agentruntest.NewLocal(dir) },
			}))
			t.Cleanup(double.Close)
			return map[string]any{
				"access_key_id": "LTAI-e2e", "access_key_secret": "a secret of the double", "account_id": "1",
				"control_endpoint": double.URL, "data_endpoint": double.URL, "allow_private": true,
			}
		},
	} {
		t.Run(id, func(t *testing.T) {
			if fields != nil {
				a.configureTemporarily(t, id, fields(t))
			}
			providertest.Programs(t, func(ctx context.Context, p brig.Program) (*brig.Outcome, error) {
				p.Placement = brig.Placement{Provider: id, Only: true}
				o, err := svc.Run(ctx, p, brig.IO{})
				if err == nil && (o.Route.Provider != id || o.Route.Reason != "asked for") {
					t.Errorf("it went to %+v", o.Route)
				}
				return o, err
			})
		})
	}
}

// behindSSH starts an SSH host and returns its provider configuration.
func behindSSH(t *testing.T) map[string]any {
	t.Helper()
	dir := t.TempDir() // the directory of the remote agent, which ends with the test
	m := sshtest.Start(t)
	return map[string]any{
		"host": "127.0.0.1", "port": m.Port, "username": "root", "private_key": m.ClientKey,
		"known_hosts": m.Line(m.HostKey), "work_dir": dir,
	}
}

// cloudOf returns a provider configuration that uses another server in place of E2B's cloud.
func cloudOf(t *testing.T, other *server) map[string]any {
	t.Helper()
	key, err := os.ReadFile(filepath.Join(other.dir, "e2b.key"))
	if err != nil {
		t.Fatal(err)
	}
	return map[string]any{"api_url": other.url, "sandbox_url": other.url, "api_key": strings.TrimSpace(string(key))}
}

// configureTemporarily configures a provider, tests it, and removes it at the end of the test.
func (s *server) configureTemporarily(t *testing.T, id string, fields map[string]any) {
	t.Helper()
	raw, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	svc := s.client()
	if _, err := svc.ConfigureProvider(t.Context(), brig.ProviderConfig{ID: id, Config: raw, Test: true}); err != nil {
		t.Fatalf("configure %s: %v", id, err)
	}
	t.Cleanup(func() {
		// Retry, because the last program's sandbox is removed only after the response.
		err := svc.RemoveProvider(context.WithoutCancel(t.Context()), id)
		for end := time.Now().Add(2 * promptTimeout); brig.KindOf(err) == brig.FailedPrecondition && time.Now().Before(end); {
			time.Sleep(50 * time.Millisecond)
			err = svc.RemoveProvider(context.WithoutCancel(t.Context()), id)
		}
		if err != nil {
			t.Errorf("forget %s: %v", id, err)
		}
	})
}

// TestSettingsReloadFromDatabase verifies that a server applies a setting that another
// process writes into the database.
//
//suite:part providers
func TestSettingsReloadFromDatabase(t *testing.T) {
	needRoot(t)
	b := startManager(t)
	dir := t.TempDir()
	a := startServer(t, dir, "--config", writeConfig(t, "metrics: {trial: 0s}\n"))
	a.configure(elsewhere, map[string]any{"endpoint": b.url})
	store, err := sqlite.Open(t.Context(), filepath.Join(dir, "brig.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	for _, id := range []string{elsewhere, here} {
		row := brig.Setting{Name: brig.SettingProvider, Type: "string", Value: []byte(id), Updated: time.Now()}
		if err := store.PutSettings(t.Context(), []brig.Setting{row}); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		for a.activeProvider() != id {
			if time.Since(begin) > promptTimeout {
				t.Fatalf("%s is not active", id)
			}
			time.Sleep(20 * time.Millisecond)
		}
		t.Logf("%s was active after %v", id, time.Since(begin).Round(time.Millisecond))
		p, _ := doublingProgram(1)
		if o, err := a.client().Run(t.Context(), p, brig.IO{}); err != nil || o.Route.Provider != id {
			t.Errorf("a run after that: %+v, %v", o, err)
		}
	}
}

// activeProvider returns the ID of the active provider.
func (s *server) activeProvider() string {
	s.t.Helper()
	list, err := s.client().Providers(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	for _, p := range list {
		if p.Active {
			return p.ID
		}
	}
	return ""
}

// TestProviderSecretsAreEncrypted verifies that a provider's secrets are stored only in encrypted form, and
// that only their last four characters are displayed.
//
//suite:part providers
func TestProviderSecretsAreEncrypted(t *testing.T) {
	needRoot(t)
	const aliyun, phrase = "aliyun_codeinterpreter", "wholly-unguessable-0af3c9d1-7788"
	private, public := sshtest.Key(t, "")
	secrets := []string{phrase, strings.Split(private, "\n")[2]} // a line from the middle of the key
	dir := t.TempDir()
	a := startServer(t, dir, "--config", writeConfig(t, "metrics: {trial: 0s}\n"))
	// No server listens on this port, so the log contains the connection
	// errors.
	a.configure(aliyun, map[string]any{
		"access_key_id": "LTAI-e2e", "access_key_secret": phrase, "account_id": "1431999136518149",
		"control_endpoint": "http://127.0.0.1:1", "data_endpoint": "http://127.0.0.1:1", "allow_private": true,
	})
	a.configure("ssh", map[string]any{
		"host": "127.0.0.1", "port": 1, "username": "LTAI-e2e", "private_key": private, "known_hosts": "[127.0.0.1]:1 " + string(ssh.MarshalAuthorizedKey(public)),
	})
	for _, id := range []string{aliyun, "ssh"} {
		if result, err := a.client().TestProvider(t.Context(), brig.ProviderConfig{ID: id}); err != nil || result.OK {
			t.Fatalf("%+v, %v\n%s", result, err, a.errs)
		}
	}
	if err := a.client().ActivateProvider(t.Context(), aliyun); err != nil {
		t.Fatal(err)
	}
	found := 0
	look := func(what string, b []byte) {
		for _, secret := range secrets {
			if bytes.Contains(b, []byte(secret)) {
				t.Errorf("%s has a secret", what)
			}
		}
		if bytes.Contains(b, []byte("LTAI-e2e")) {
			found++
		}
	}
	for path, shows := range map[string]string{
		"/v1/providers": `"****7788"`, "/api/v1/admin/sandbox/config": `7788"`, "/api/admin/sandbox/config": `7788"`,
		"/v1/audit": aliyun, "/metrics": "brig_", "/v1/alerts": "", "/openapi.json": "",
	} {
		status, text := a.do("GET", path, "")
		if status != 200 || !strings.Contains(text, shows) {
			t.Errorf("%s: %d, and it does not show %s: %s", path, status, shows, brig.Clip(text, 2000))
		}
		look(path, []byte(text))
	}
	// files searches the whole data folder except for Brig's own programs.
	files := func() (kept int) {
		found = 0
		err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
			switch {
			case err != nil && !errors.Is(err, fs.ErrNotExist): // pooled sandboxes are created and removed concurrently
				return err
			case err == nil && d.IsDir() && name == filepath.Join(dir, "bin"):
				return filepath.SkipDir
			case err == nil && d.Type().IsRegular():
				if b, err := os.ReadFile(name); err == nil {
					kept++
					look(name, b)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return kept
	}
	kept := files()
	// The control: the search finds the public part of the configuration, so it would also find a
	// plaintext secret.
	if found == 0 || kept < 10 {
		t.Errorf("none of %d files contains the configuration", kept)
	}
	if err := a.stop(); err != nil {
		t.Error(err)
	}
	files() // search again when no writes are pending
	look("the log", []byte(a.errs.String()))
}
