package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/attack"
)

// spyPage is a page that attempts every action that a sandbox's page must not be able to perform
// on another sandbox or on the server. It records the result of each attempt.
const spyPage = `<!doctype html><body><script>
const victim = %q, api = %q, id = %q, out = {}
async function attempt(name, f) {
  try { out[name] = String(await f()) } catch (e) { out[name] = 'refused' }
}
async function all() {
  document.cookie = 'mine=1'
  out.cookies = document.cookie
  await attempt('read', async () => (await fetch(victim, {credentials: 'include'})).text())
  await attempt('frame', () => new Promise((done, fail) => {
    const f = document.createElement('iframe')
    f.src = victim
    f.onload = () => { try { done(f.contentDocument.body.innerText) } catch (e) { fail(e) } }
    setTimeout(() => fail(), 5000)
    document.body.append(f)
  }))
  await attempt('list', async () => (await fetch(api + '/sandboxes', {headers: {'X-API-KEY': %q}})).status)
  await attempt('create', async () => (await fetch(api + '/sandboxes', {method: 'POST', body: '{"templateID":"base"}', mode: 'no-cors'})).status)
  await attempt('native', async () => (await fetch(api + '/v1/sandboxes')).status)
  await attempt('envd', async () => (await fetch(api + '/files?path=/etc/passwd', {headers: {'E2b-Sandbox-Id': id, 'E2b-Sandbox-Port': '49983'}})).status)
  document.body.innerText = 'DONE ' + JSON.stringify(out) + ' END'
}
all()
</script>`

// TestE2BOrigins verifies that pages of one sandbox can neither read the data
// of another sandbox's pages nor call the server. The control is the victim's
// own page, which may access its own data.
//
//suite:part clients
func TestE2BOrigins(t *testing.T) {
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal("needs a browser: apt-get install chromium")
	}
	s := startE2BDomain(t)
	domain := strings.TrimPrefix(s.env[1], "E2B_DOMAIN=")
	key := strings.TrimPrefix(s.env[0], "E2B_API_KEY=")
	ctx := t.Context()
	c := s.client()
	web := func(name string, page func(host string, id brig.ID) string) (host string, id brig.ID) {
		t.Helper()
		box, err := c.Create(ctx, brig.Spec{Name: name, TTL: 10 * time.Minute, Labels: map[string]string{"brig.e2b/door": "1", "brig.e2b/template": "base"}})
		if err != nil {
			t.Fatal(err)
		}
		const server = `
import http.server, os
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Set-Cookie", "session=" + os.environ["SECRET"])
        self.send_header("Set-Cookie", "wide=" + os.environ["SECRET"] + "; Domain=e2b.test")
        self.end_headers()
        self.wfile.write(os.environ["SPY"].encode() if self.path == "/spy" else b"the page of " + os.environ["NAME"].encode())
    def log_message(self, *a): pass
http.server.ThreadingHTTPServer(("127.0.0.1", 8000), H).serve_forever()
`
		host = fmt.Sprintf("https://8000-%s.%s", box.ID, domain)
		_, err = c.Processes(name).Start(ctx, brig.ProcessSpec{Command: brig.Command{
			Argv: []string{"python3", "-c", server}, Env: map[string]string{"NAME": name, "SPY": page(host, box.ID), "SECRET": "secret-of-" + name},
		}})
		if err != nil {
			t.Fatal(err)
		}
		return host, box.ID
	}
	on := func(host string, id brig.ID) string {
		return fmt.Sprintf(spyPage, host+"/", "https://api."+domain, string(id), key)
	}
	victim, id := web("victim", on) // the victim's own /spy page is the control
	other, _ := web("other", func(string, brig.ID) string { return on(victim, id) })

	profile := t.TempDir()
	visit := func(urls ...string) string {
		t.Helper()
		var out []byte
		for _, u := range urls {
			bounded, cancel := context.WithTimeout(ctx, 60*time.Second)
			cmd := exec.CommandContext(bounded, browser, "--headless", "--no-sandbox", "--disable-gpu", "--ignore-certificate-errors",
				"--host-resolver-rules=MAP *.e2b.test 127.0.0.1", "--user-data-dir="+profile, "--virtual-time-budget=20000", "--dump-dom", u)
			cmd.Env = append(os.Environ(), "HOME="+profile)
			var err error
			out, err = cmd.Output()
			cancel()
			if err != nil {
				t.Fatalf("%s: %v", u, err)
			}
		}
		return string(out)
	}
	openPages := func(urls ...string) string {
		t.Helper()
		got := visit(urls...)
		found := regexp.MustCompile(`DONE (.*) END`).FindStringSubmatch(got)
		if found == nil {
			t.Fatalf("the spy did not end: %s", got)
		}
		return strings.ReplaceAll(found[1], "&quot;", `"`)
	}
	if own := openPages(victim+"/", victim+"/spy"); strings.Count(own, "the page of victim") != 2 || !strings.Contains(own, "session=secret-of-victim") {
		t.Fatalf("on its own host the spy sees nothing: %s", own)
	}
	report := openPages(victim+"/", other+"/", other+"/spy")
	t.Log(report)
	attack.RecordMutant("UI-02", "the victim's own page reads all of it", "another origin", true)
	attack.RecordCase("UI-02", "a page of one sandbox: cookies", strings.Contains(report, "secret-of-victim"))
	if strings.Contains(report, "secret-of-victim") || strings.Contains(report, "the page of victim") {
		t.Errorf("it has read what is another's: %s", report)
	}
	for _, probe := range []string{"read", "frame", "list", "native", "envd"} {
		refused := strings.Contains(report, fmt.Sprintf("%q:%q", probe, "refused")) || strings.Contains(report, fmt.Sprintf("%q:%q", probe, "403"))
		if !refused {
			t.Errorf("%s: %s", probe, report)
		}
		attack.RecordCase("UI-02", "a page of one sandbox: "+probe, !refused)
	}
	remaining, err := c.List(ctx, brig.ListOptions{})
	if err != nil || len(remaining.Sandboxes) != 2 {
		t.Fatalf("there are %d sandboxes, want 2: %v", len(remaining.Sandboxes), err)
	}
	attack.RecordCase("UI-02", "a page of one sandbox: create", false)
}
