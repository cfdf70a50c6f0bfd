package e2e

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/attack"
	"github.com/brig-run/brig/internal/testenv"
)

// secretLab is a server with two hosts that its sandboxes may connect to. It records all
// responses of the server.
type secretLab struct {
	*server
	hosts   *reflector
	answers bytes.Buffer
	values  []string // the values of all scenarios
	secret  string   // the name of the scenario's secret
	value   string
	box     string
	dir     string // the sandbox's directory on the host
	after   func() // called after the scenario's code has run
	test    *testing.T
	start   func() // starts the server
}

// startSecretLab starts a server in a mount namespace in which the names of the
// lab's hosts resolve to an address.
func startSecretLab(t *testing.T) *secretLab {
	t.Helper()
	run(t, "ip", "link", "set", "lo", "up")
	run(t, "ip", "addr", "add", good+"/32", "dev", "lo")
	cert, key := certificate(t, "brig-test.com")
	l := &secretLab{hosts: newReflector(t, good, cert, key)}
	work := t.TempDir()
	names, wrapper := filepath.Join(work, "hosts"), filepath.Join(work, "brig")
	script := fmt.Sprintf("#!/bin/sh\nexec unshare -m --propagation private sh -c 'mount --bind %s /etc/hosts && exec %s \"$@\"' sh \"$@\"\n", names, bin(t, "brig"))
	for name, text := range map[string]string{names: "127.0.0.1 localhost\n" + good + " " + boundHost + " " + otherHost + "\n", wrapper: script} {
		if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	config, dir := filepath.Join(work, "brig.yaml"), dataDir(t)
	begin := `python3 -c "import os, urllib.request as u; u.urlopen(u.Request('https://` + boundHost + `/plain', headers={'X-Key': os.environ['TOKEN']})).read(); print(os.environ['TOKEN'])" >/workspace/begun 2>/workspace/why; sleep 600`
	text := fmt.Sprintf("pool: {size: 1}\ntemplates:\n  prepared:\n    image: host\n    ready: test -s /workspace/begun || { cat /workspace/why; false; }\n    start: |\n      %s\n", begin)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	l.start = func() {
		l.server = launchServer(t, wrapper, []string{"SSL_CERT_FILE=" + cert, "GOTRACEBACK=all"}, dir, "--config", config)
		l.await()
	}
	l.start()
	l.do("POST", "/v1/workspaces", `{"name":"kept"}`)
	return l
}

// restart kills the server and starts a new one.
func (l *secretLab) restart() {
	l.kill()
	fmt.Fprintln(&l.answers, l.errs)
	l.start()
	l.t = l.test
}

// do sends a request and records the response.
func (l *secretLab) do(method, path, body string) (int, string) {
	l.t.Helper()
	status, resp := l.server.do(method, path, body)
	fmt.Fprintln(&l.answers, method, path, status, resp)
	if status >= 500 {
		l.t.Errorf("%s %s: %d %s", method, path, status, resp)
	}
	return status, resp
}

// newValue returns a new secret value, and adds it to all subsequent searches. The value contains
// characters that need escaping.
func (l *secretLab) newValue() string {
	v := `sk-"+&/<é>` + rand.Text()
	l.values = append(l.values, v)
	return v
}

// put sets a secret. The argument more holds additional JSON fields.
func (l *secretLab) put(name, value, more string) {
	l.t.Helper()
	quoted, err := json.Marshal(value)
	if err != nil {
		l.t.Fatal(err)
	}
	if status, resp := l.do("PUT", "/v1/secrets/"+name, fmt.Sprintf(`{"value":%s,"hosts":[%q]%s}`, quoted, boundHost, more)); status != 200 {
		l.t.Fatalf("put: %d %s", status, resp)
	}
}

// createWithSecret creates a sandbox with a secret.
func (l *secretLab) createWithSecret(name, secret string, more ...string) {
	l.t.Helper()
	l.box = name
	status, resp := l.do("POST", "/v1/sandboxes", fmt.Sprintf(`{"name":%q,"secrets":[{"name":%q,"env":"TOKEN"}],"egress":{"rules":[{"host":%q},{"host":%q},{"cidr":%q}]}%s}`,
		name, secret, boundHost, otherHost, good, strings.Join(more, "")))
	var s struct{ ID string }
	if err := json.Unmarshal([]byte(resp), &s); err != nil || status != 201 {
		l.t.Fatalf("create: %d %s", status, resp)
	}
	l.dir = filepath.Join(l.server.dir, "sandboxes", s.ID)
}

// code runs code in the sandbox's interpreter.
func (l *secretLab) code(t *testing.T, code string) string {
	t.Helper()
	r, err := l.client().RunCode(t.Context(), l.box, brig.Code{Source: code, Timeout: 30 * time.Second}, nil)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&l.answers, "%+v %s %s\n", r, r.Stdout.Head, r.Stderr.Head)
	if r.Error != nil {
		t.Errorf("the code failed: %+v", r.Error)
	}
	return string(r.Stdout.Head)
}

// TestNoScenarioRevealsSecret verifies that no scenario reveals the value of a brokered secret. It
// searches all places, from the host, that must not contain the value. The host to which the
// secret is bound must have received the value; the other host must have received the
// placeholder.
//
//suite:part egress
func TestNoScenarioRevealsSecret(t *testing.T) {
	if !runInLab(t) {
		return
	}
	l := startSecretLab(t)
	all := slices.Concat(sendScenarios(), echoScenarios(), confusionScenarios(), wideningScenarios(), residueScenarios())
	if len(all) < 50 {
		t.Errorf("%d scenarios are too few", len(all))
	}
	scenarios := testenv.Share(t, all, 14)
	for n, s := range scenarios {
		t.Run(strings.NewReplacer(" ", "_", ",", "", "/", "").Replace(s.name), func(t *testing.T) { l.try(t, n+1, s) })
	}
	t.Run("left on the host", l.checkNoValueLeft)
	t.Run("control", l.control)
	t.Logf("%d scenarios, %d values", len(scenarios), len(l.values))
}

// try runs one scenario with its own sandbox and value.
func (l *secretLab) try(t *testing.T, n int, s scenario) {
	l.t, l.test, l.after = t, t, nil
	l.secret, l.value = fmt.Sprintf("token-%d", n), l.newValue()
	current := len(l.values) - 1
	l.hosts.begin(l.value)
	more := ""
	if len(s.places) > 0 {
		b, err := json.Marshal(s.places)
		if err != nil {
			t.Fatal(err)
		}
		more = `,"places":` + string(b)
	}
	if s.plain {
		more += `,"plain":true`
	}
	l.put(l.secret, l.value, more)
	l.createWithSecret(fmt.Sprintf("box-%d", n), l.secret, s.spec)
	if s.do != nil {
		s.do(l)
	}
	printed := ""
	if s.code != "" {
		printed = l.code(t, secretPrelude+s.code)
	}
	if l.after != nil {
		l.after()
	}
	if !strings.Contains(printed, s.want) {
		t.Errorf("the sandbox has %q, without %q", printed, s.want)
	}
	if got := within(l.hosts.received(boundHost), l.value) > 0; got == s.kept {
		t.Errorf("the host that it is for has got it: %t, want %t: %s\nthe sandbox has %s", got, !s.kept, l.hosts.received(boundHost), printed)
	}
	other, revealed, inside := 0, 0, 0
	for _, v := range l.values[current:] {
		other += within(l.hosts.received(otherHost), v)
		revealed += within([]byte(printed), v) + within(l.answers.Bytes(), v)
		inside += countInGuest(t, l.dir, v)
	}
	if other+revealed+inside > 0 {
		t.Errorf("traces of the value: %d at another host, %d in answers, %d in the sandbox: %s", other, revealed, inside, printed)
	}
	attack.RecordCase(s.id, "scenario: "+s.name, other+revealed+inside > 0)
	if n%8 != 0 { // keep some sandboxes for the final search
		l.do("DELETE", "/v1/sandboxes/"+l.box, "")
	}
}

// checkNoValueLeft searches all data of the ended server for secret values.
func (l *secretLab) checkNoValueLeft(t *testing.T) {
	l.t = t
	l.requestEverything(t)
	look := func(what string, b []byte) {
		n := 0
		for _, v := range l.values {
			n += within(b, v)
		}
		what = strings.ReplaceAll(what, l.server.dir, "")
		if strings.HasPrefix(what, "/proc/") {
			what = "/proc/*/" + filepath.Base(what)
		}
		if n > 0 {
			t.Errorf("%s has %d traces of values", what, n)
		}
		attack.RecordCase("SEC-06", "after the scenarios: "+what, n > 0)
	}
	lookProcesses(t, look)
	lookFiles(t, l.server.dir, look)
	// A crashing server prints the stacks of all goroutines.
	_ = l.cmd.Process.Signal(syscall.SIGQUIT)
	_ = l.cmd.Wait()
	if !bytes.Contains(l.errs.Bytes(), []byte("SIGQUIT")) {
		t.Errorf("it did not say why it ended: %s", l.errs)
	}
	lookFiles(t, l.server.dir, look)
	look("the log and the last words of the server", l.errs.Bytes())
	look("answers", l.answers.Bytes())
}

// requestEverything requests all information that the API provides.
func (l *secretLab) requestEverything(t *testing.T) {
	t.Helper()
	for _, path := range []string{"/v1/secrets", "/v1/sandboxes", "/v1/audit?limit=1000", "/metrics", "/v1/pool", "/v1/usage", "/v1/keys", "/v1/templates", "/openapi.json"} {
		l.do("GET", path, "")
	}
	for _, args := range [][]string{{"audit", "export"}, {"audit", "export", "--format", "ocsf"}, {"audit", "replay", l.box}, {"sandbox", "ls"}, {"secret", "ls"}, {"--json", "secret", "ls"}} {
		out, err := exec.Command(bin(t, "brig"), append([]string{"--data-dir", l.server.dir}, args...)...).CombinedOutput()
		if err != nil {
			t.Errorf("%q: %v: %s", args, err, out)
		}
		l.answers.Write(out)
	}
}

// control creates a secret without hosts, whose value the guest receives. Every oracle must
// detect the value.
func (l *secretLab) control(t *testing.T) {
	l.start()
	l.t = t
	value := l.newValue()
	l.answers.Reset()
	quoted, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	l.do("PUT", "/v1/secrets/ordinary", fmt.Sprintf(`{"value":%s}`, quoted))
	status, resp := l.do("POST", "/v1/sandboxes", fmt.Sprintf(`{"name":"control","secrets":[{"name":"ordinary","env":"TOKEN"}],"labels":{"team":%q},"shell":"echo $TOKEN; exec sleep 600"}`, value[len(value)-26:]))
	var s struct{ ID string }
	if err := json.Unmarshal([]byte(resp), &s); err != nil || status != 201 {
		t.Fatalf("%d %s", status, resp)
	}
	l.box, l.dir = "control", filepath.Join(l.server.dir, "sandboxes", s.ID)
	printed := l.code(t, secretPrelude+"show(T)")
	l.do("GET", "/v1/sandboxes/control/logs", "")
	inside, files := countInGuest(t, l.dir, value), map[string]int{}
	lookFiles(t, l.server.dir, func(name string, b []byte) {
		kind := filepath.Base(name)
		if strings.Contains(name, ".db") {
			kind = "database"
		}
		files[kind] += within(b, value)
	})
	l.requestEverything(t)
	for what, n := range map[string]int{
		"memory and files of the sandbox": inside, "what it prints": within([]byte(printed), value), "answers and the audit log": within(l.answers.Bytes(), value),
		"the database": files["database"], "a log": files["log"],
	} {
		if n == 0 {
			t.Errorf("an ordinary variable is not seen in %s: %v", what, files)
		}
		attack.RecordMutant("SEC-06", "a value that is a variable, in "+what, "brokering", n > 0)
	}
}
