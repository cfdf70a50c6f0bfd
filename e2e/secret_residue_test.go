package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/brig-run/brig"
)

// residueScenarios returns scenarios in which a value might remain in data that a guest stores,
// or in the server's copies of that data.
func residueScenarios() []scenario {
	// In each scenario, the host's response contains the value, and the guest stores the
	// response.
	const fetch = `import os, urllib.request as u; b = u.urlopen(u.Request('https://api.brig-test.com/%s', headers={'Authorization': 'Bearer ' + os.environ['TOKEN']})).read(); print(os.environ['TOKEN'], b)`
	python := func(path string) string { return `python3 -c "` + fmt.Sprintf(fetch, path) + `"` }
	list := []scenario{
		{id: "SEC-01", name: "everything of /proc, as root", code: `ask()`, do: func(l *secretLab) {
			l.command("root", `cat /proc/*/environ /proc/*/cmdline /proc/*/maps >/workspace/proc 2>/dev/null; `+
				`python3 - <<'E'
import glob
n = 0
for p in glob.glob("/proc/[0-9]*"):
    try:
        for line in open(p + "/maps"):
            a, b = (int(x, 16) for x in line.split()[0].split("-"))
            if b - a < 1 << 26:
                m = open(p + "/mem", "rb"); m.seek(a); n += len(m.read(b - a))
    except OSError: pass
print(n, "bytes of memory were read")
E`)
		}},
		{id: "SEC-01", name: "a core dump", code: `ask(); print(subprocess.run(["sh", "-c", "ulimit -c unlimited; cd /workspace; ` + strings.ReplaceAll(python("plain"), `"`, `\"`) + `; python3 -c 'import os; os.abort()'; ls -la /workspace"], capture_output=True).stdout)`},
		{id: "SEC-01", name: "an interpreter's traceback", code: "try:\n  raise ValueError(T, ask())\nexcept ValueError:\n  import traceback; show(traceback.format_exc())\n"},
		{id: "SEC-01", name: "a directory of everything written", code: `ask("/base64"); print(subprocess.run("cat /etc/* /tmp/* /workspace/* /dev/shm/* 2>/dev/null | wc -c", shell=True, capture_output=True).stdout)`},
		{id: "SEC-01", name: "the authority's certificates and resolver", code: `ask(); show(open("/etc/resolv.conf").read()); [show(open(os.path.join(d, f), "rb").read()) for d, _, fs in os.walk("/etc/ssl/certs") for f in fs if "brig" in f.lower()]`},
		{id: "SEC-01", name: "a second context", code: `ask()`, do: func(l *secretLab) {
			l.do("POST", l.path("/contexts"), `{"language":"python"}`)
			l.do("POST", l.path("/code"), `{"language":"bash","code":"env; `+strings.NewReplacer(`"`, `\"`).Replace(python("mime"))+`"}`)
			l.do("GET", l.path("/contexts"), "")
		}},
		{id: "SEC-01", name: "a terminal", code: `ask()`, do: func(l *secretLab) {
			l.process(`{"shell":"env; ` + strings.ReplaceAll(python("plain"), `"`, `\"`) + `; sleep 600","terminal":{"columns":200,"rows":50}}`)
		}},
		{id: "SEC-01", name: "a process that goes on", code: `ask()`, do: func(l *secretLab) {
			l.process(`{"shell":"` + strings.ReplaceAll(python("header"), `"`, `\"`) + `; env; sleep 600"}`)
		}},
		{id: "SEC-01", name: "an execution and its record", code: `ask()`, do: func(l *secretLab) {
			l.command("user", python("jsonu")+"; env >&2; exit 3")
			l.do("GET", l.path("/execs"), "")
		}},
		{id: "SEC-01", name: "the main program and its log", spec: `,"shell":"echo begun $TOKEN; sleep 1; ` + strings.ReplaceAll(python("quoted"), `"`, `\"`) + `; sleep 600"`, code: `ask()`, do: func(l *secretLab) {
			time.Sleep(3 * time.Second)
			eventually(l.t, "the main program has begun", func() bool {
				_, log := l.do("GET", l.path("/logs"), "")
				return strings.Contains(log, "begun brig-secret-")
			})
		}},
		{id: "SEC-01", name: "artifacts and answer of a one-shot", code: `ask()`, do: func(l *secretLab) {
			_, resp := l.do("POST", "/v1/run", fmt.Sprintf(`{"language":"python","code":%q,"secrets":[{"name":%q,"env":"TOKEN"}],"egress":{"rules":[{"host":%q},{"cidr":%q}]}}`,
				"import os\nos.makedirs('artifacts', exist_ok=True)\n"+fmt.Sprintf(fetch, "plain")+"\nopen('artifacts/a.csv', 'wb').write(b)\ndef main(): return b.decode()", l.secret, boundHost, good))
			if !strings.Contains(resp, "brig-secret-") || !strings.Contains(resp, `"path":"a.csv"`) {
				l.t.Errorf("the one-shot: %s", resp)
			}
		}},
		{id: "SEC-01", name: "a workspace that is kept", spec: `,"workspace":{"name":"kept"}`, code: `ask("/plain"); ask("/hex"); ask("/utf16")`, do: func(l *secretLab) {
			l.after = func() {
				if status, resp := l.do("POST", l.path("/commit"), ""); status != 200 {
					l.t.Errorf("commit: %d %s", status, resp)
				}
			}
		}},
		{id: "SEC-01", name: "files that are downloaded", code: `ask("/multipart")`, do: func(l *secretLab) {
			l.after = func() { l.do("GET", l.path("/files/content?path=/workspace/seen"), "") }
		}},
		{id: "SEC-01", name: "a template that begins with it", spec: `,"template":"prepared"`, code: `ask(); show(open("/workspace/begun").read())`, want: "brig-secret-"},
		{id: "SEC-06", name: "refusals that repeat what was given", code: `ask()`, do: func(l *secretLab) {
			for _, body := range []string{`{"valu":%s}`, `{"value":%s,"hosts":["10.0.0.1"]}`, `{"value":%s,"places":["nowhere"]}`, `{"value":%s,"value_b64":"eA=="}`, `{"value":[%s]}`, `%s`, `{"value":%s`, `{"value":"a"}%s`} {
				l.do("PUT", "/v1/secrets/"+l.secret, fmt.Sprintf(body, fmt.Sprintf("%q", l.value)))
			}
		}},
		{id: "SEC-06", name: "a value too long or with control characters", code: `ask()`, do: func(l *secretLab) {
			l.do("PUT", "/v1/secrets/"+l.secret, fmt.Sprintf(`{"value":%q,"hosts":[%q]}`, strings.Repeat(l.value, 4000), boundHost))
			l.do("PUT", "/v1/secrets/"+l.secret, fmt.Sprintf(`{"value":%q,"hosts":[%q]}`, l.value+"\n", boundHost))
		}},
		{id: "SEC-06", name: "usage, labels and records", spec: `,"labels":{"team":"x"}`, code: `ask()`, do: func(l *secretLab) {
			l.after = func() {
				for _, path := range []string{l.path(""), "/v1/usage", "/v1/audit?limit=1000", "/metrics", "/v1/secrets"} {
					l.do("GET", path, "")
				}
			}
		}},
		{id: "SEC-06", name: "as a variable of another sandbox", code: `ask()`, do: func(l *secretLab) {
			name, dir := l.box, l.dir
			l.createWithSecret(name+"-second", l.secret)
			if out := l.command("user", "env"); strings.Contains(out, l.value) {
				l.t.Errorf("the second sandbox has %s", out)
			}
			if n := countInGuest(l.test, l.dir, l.value); n > 0 {
				l.t.Errorf("the second sandbox has %d traces", n)
			}
			l.box, l.dir = name, dir
		}},
		{id: "SEC-06", name: "a new master key", code: `ask()`, do: func(l *secretLab) { l.do("POST", "/v1/secrets/rotate_key", "") }},
		{id: "SEC-06", name: "removal, and a name used again", code: `ask()`, do: func(l *secretLab) {
			l.do(http.MethodDelete, "/v1/secrets/"+l.secret, "")
			l.put(l.secret, l.value, "")
		}},
		{id: "SEC-06", name: "an attestation", code: `ask()`, do: func(l *secretLab) { l.do("POST", l.path("/attest"), "") }},
		{id: "SEC-06", name: "a server that is killed meanwhile, and the next", code: `ask("/plain"); ask("/mime")`, do: func(l *secretLab) {
			l.code(l.test, secretPrelude+`ask("/plain")`)
			l.restart()
		}},
		{id: "SEC-02", name: "the host's address, which a network's rule allows", code: `raw("GET /mirror HTTP/1.1\r\nHost: "+A+"\r\nConnection: close\r\n"+AUTH+"\r\n", host="` + good + `", tls=False, port=80)`, kept: true, want: "brig-secret-"},
	}
	return list
}

// path returns the path of a route of the scenario's sandbox.
func (l *secretLab) path(rest string) string { return "/v1/sandboxes/" + l.box + rest }

// command runs a command in the sandbox.
func (l *secretLab) command(user, script string) string {
	l.t.Helper()
	r, err := l.client().Exec(l.test.Context(), l.box, brig.Command{Shell: script, User: user, Timeout: 30 * time.Second}, brig.IO{})
	if err != nil {
		l.t.Fatal(err)
	}
	fmt.Fprintf(&l.answers, "%+v %s %s\n", r, r.Stdout.Head, r.Stderr.Head)
	return string(r.Stdout.Head)
}

// process starts a process, and lists the processes a moment later.
func (l *secretLab) process(body string) {
	l.t.Helper()
	status, resp := l.do("POST", l.path("/processes"), body)
	if status >= 300 {
		l.t.Errorf("process: %d %s", status, resp)
	}
	time.Sleep(1500 * time.Millisecond)
	l.do("GET", l.path("/processes"), "")
}
