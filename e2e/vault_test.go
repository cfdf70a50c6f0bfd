package e2e

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/attack"
)

// secretCanaries holds the secret values of TestServerDataContainsNoSecrets. No program in
// the test prints them.
type secretCanaries struct{ plain, brokered string }

// TestServerDataContainsNoSecrets uses secrets in every possible way, and then searches all data of the server
// for their values: files, logs, responses, and the arguments and environment of processes. The
// value of a secret without hosts may occur only in the guest, and the value of a secret with
// hosts nowhere.
//
//suite:part egress
func TestServerDataContainsNoSecrets(t *testing.T) {
	needRoot(t)
	dir := dataDir(t)
	s := startServer(t, dir)
	svc, ctx := s.client(), t.Context()
	c := secretCanaries{"plain" + rand.Text() + rand.Text(), "brokered" + rand.Text() + rand.Text()}
	var answers bytes.Buffer
	ask := func(method, path, body string) {
		status, resp := s.do(method, path, body)
		fmt.Fprintln(&answers, method, path, status, resp)
		if status >= 500 {
			t.Errorf("%s %s: %d %s", method, path, status, resp)
		}
	}
	ask("PUT", "/v1/secrets/plain", `{"value":"`+c.plain+`"}`)
	ask("PUT", "/v1/secrets/brokered", `{"value":"`+c.brokered+`","hosts":["api.example.com"]}`)
	ask("PUT", "/v1/secrets/plain", `{"value":"`+c.plain+`","hosts":["10.0.0.1"]}`) // rejected
	ask("PUT", "/v1/secrets/plain", `{"valu":"`+c.plain+`"}`)                       // rejected
	const uses = `"secrets":[{"name":"plain"},{"name":"brokered"}]`
	check := `import os; p, b = os.environ["PLAIN"], os.environ["BROKERED"]; print(len(p), b.startswith("brig-secret-"))`
	want := strconv.Itoa(len(c.plain)) + " True\n"
	for range 3 { // with and without a pooled sandbox
		o, err := svc.Run(ctx, brig.Program{Language: brig.Python, Code: check, Secrets: []brig.SecretUse{{Name: "plain"}, {Name: "brokered"}}}, brig.IO{})
		if err != nil || string(o.Stdout.Head) != want {
			t.Fatalf("run: %+v, %v", o, err)
		}
	}
	ask("POST", "/v1/run", `{"language":"javascript","code":"if (!process.env.PLAIN) throw 1",`+uses+`}`)
	ask("POST", "/v1/run", `{"command":["sh","-c","exit 3"],`+uses+`}`)
	ask("POST", "/v1/sandboxes", `{"name":"box","shell":"echo main ${#PLAIN}; exec sleep 1000",`+uses+`}`)
	ask("POST", "/v1/sandboxes", `{"name":"pooled",`+uses+`}`)
	for _, box := range []string{"box", "pooled"} {
		res, err := svc.Exec(ctx, box, brig.Command{Argv: []string{"python3", "-c", check}}, brig.IO{})
		if err != nil || string(res.Stdout.Head) != want {
			t.Fatalf("exec: %+v, %v", res, err)
		}
		code, err := svc.RunCode(ctx, box, brig.Code{Source: check}, nil)
		if err != nil || string(code.Stdout.Head) != want {
			t.Fatalf("code: %+v, %v", code, err)
		}
		if _, err := svc.Processes(box).Start(ctx, brig.ProcessSpec{Command: brig.Command{Shell: `test "$PLAIN" || exit 1; sleep 1000`}}); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"", "/execs", "/contexts", "/processes", "/logs"} {
			ask("GET", "/v1/sandboxes/"+box+path, "")
		}
	}
	// The main program receives the value, although order.json does not contain it.
	if status, log := s.do("GET", "/v1/sandboxes/box/logs", ""); status != 200 || !strings.Contains(log, "main "+strconv.Itoa(len(c.plain))) {
		t.Errorf("the main program: %d %s", status, log)
	}
	for _, path := range []string{"/v1/secrets", "/v1/sandboxes", "/v1/audit?limit=1000", "/metrics", "/openapi.json", "/v1/pool"} {
		ask("GET", path, "")
	}
	ask("POST", "/v1/secrets/rotate_key", "")
	export, err := exec.Command(bin(t, "brig"), "--data-dir", dir, "audit", "export").Output()
	if err != nil || !bytes.Contains(export, []byte(`"secrets":"plain,brokered"`)) {
		t.Errorf("the export: %v\n%s", err, export)
	}
	look := func(what string, b []byte) {
		t.Helper()
		c.wantNone(t, what, b)
		what = strings.TrimPrefix(what, dir)
		if strings.HasPrefix(what, "/proc/") {
			what = "/proc/*/" + filepath.Base(what)
		}
		attack.RecordCase("SEC-06", what, c.count(b) > 0)
	}
	look("answers", answers.Bytes())
	look("the export", export)
	lookProcesses(t, look)
	lookFiles(t, dir, look)
	// Search again after killing the server, and after the next server has recovered, which
	// checkpoints the WAL.
	s.kill()
	lookFiles(t, dir, look)
	look("the server's log", s.errs.Bytes())
	s = startServer(t, dir)
	svc = s.client()
	for _, box := range []string{"box", "pooled"} {
		code, err := svc.RunCode(ctx, box, brig.Code{Source: check}, nil)
		if err != nil || string(code.Stdout.Head) != want {
			t.Errorf("after a restart: %+v, %v", code, err)
		}
		if err := svc.Remove(ctx, box); err != nil {
			t.Error(err)
		}
	}
	if err := s.stop(); err != nil {
		t.Error(err)
	}
	lookFiles(t, dir, look)
	look("the next server's log", s.errs.Bytes())
	if out, err := exec.Command(bin(t, "brig"), "--data-dir", dir, "audit", "verify").CombinedOutput(); err != nil {
		t.Errorf("verify: %v\n%s", err, out)
	}
	// The control: the search finds an encoded value in a file.
	leak := filepath.Join(t.TempDir(), "leak")
	if err := os.WriteFile(leak, []byte("x"+base64.StdEncoding.EncodeToString([]byte(c.brokered))+"x"), 0o600); err != nil {
		t.Fatal(err)
	}
	found := 0
	lookFiles(t, filepath.Dir(leak), func(_ string, b []byte) { found += c.count(b) })
	if found != 1 {
		t.Errorf("a leak was found %d times", found)
	}
	attack.RecordMutant("SEC-06", "a value in a file", "its being kept away", found == 1)
}

// count returns the number of occurrences of the values in b, including Base64 encodings.
func (c secretCanaries) count(b []byte) (n int) {
	for _, v := range []string{c.plain, c.brokered} {
		for _, form := range []string{v, base64.StdEncoding.EncodeToString([]byte(v))} {
			n += bytes.Count(b, []byte(form))
		}
	}
	return n
}

func (c secretCanaries) wantNone(t *testing.T, what string, b []byte) {
	t.Helper()
	if n := c.count(b); n > 0 {
		t.Errorf("%s: a secret's value is there %d times", what, n)
	}
}

// lookFiles calls look for every file below dir.
func lookFiles(t *testing.T, dir string, look func(string, []byte)) {
	t.Helper()
	n := 0
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		// Sandboxes are created and removed concurrently. Skip the files that back a guest's
		// memory and file system, because they belong to the guest.
		if err != nil || !d.Type().IsRegular() || strings.Contains(name, "/overlay/") {
			return nil
		}
		b, err := os.ReadFile(name)
		if err == nil {
			n++
			look(name, b)
		}
		return nil
	})
	if err != nil || n == 0 {
		t.Errorf("%d files below %s, %v", n, dir, err)
	}
}

// lookProcesses calls look for the arguments and the environment of every process on the host.
func lookProcesses(t *testing.T, look func(string, []byte)) {
	t.Helper()
	procs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil || len(procs) == 0 {
		t.Fatalf("no processes: %v", err)
	}
	self := "/proc/" + strconv.Itoa(os.Getpid())
	for _, p := range procs {
		for _, file := range []string{"cmdline", "environ"} {
			if b, err := os.ReadFile(filepath.Join(p, file)); err == nil && p != self {
				look(filepath.Join(p, file), b)
			}
		}
	}
}
