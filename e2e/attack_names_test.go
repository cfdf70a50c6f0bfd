package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/attack"
)

// hostileNames are file names that contain control sequences or markup for a terminal, a log, a
// page or a header.
var hostileNames = []string{
	"\x1b]0;title\x07", "\x1b[2J\x1b[31mred", "line\nbreak", "carriage\rreturn", "\u202egpj.exe", "<img src=x onerror=alert(1)>", `quote".html`,
	"\nX-Evil: yes", "\r\n\r\n<script>", `{"level":"AUDIT"}`, "\u009b31m", "\u2028", "a\tb", "$(reboot)", "`id`", "--help", "' or 1=1", "\x7f",
}

// hasControlCharacters reports whether a text contains characters that a terminal or a log would
// interpret.
func hasControlCharacters(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool {
		return r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 || r == '\u202e' || r == '\u2028'
	})
}

// TestAttackNames verifies that file names from a guest are treated as data: they are escaped in
// JSON, on a terminal and in a header, and stay on one line in a log.
//
//suite:part hostile
func TestAttackNames(t *testing.T) {
	needRoot(t)
	dir := dataDir(t)
	s := startServer(t, dir)
	ctx, svc := t.Context(), s.client()
	if _, err := svc.Create(ctx, brig.Spec{Name: "names"}); err != nil {
		t.Fatal(err)
	}
	list, err := json.Marshal(hostileNames)
	if err != nil {
		t.Fatal(err)
	}
	code := fmt.Sprintf("import json, os\nfor n in json.loads(%q):\n    open('/workspace/' + n, 'w').write('content')", list)
	if r, err := svc.RunCode(ctx, "names", brig.Code{Source: code}, nil); err != nil || r.Error != nil {
		t.Fatalf("%+v, %v", r, err)
	}
	_, listed := s.do("GET", "/v1/sandboxes/names/files?path=/workspace&depth=1", "")
	cli := func(args ...string) string {
		out, _ := exec.Command(bin(t, "brig"), append([]string{"--data-dir", dir}, args...)...).CombinedOutput()
		return string(out)
	}
	ls := cli("sandbox", "ls", "names", "/workspace")
	if !strings.Contains(ls, "onerror") {
		t.Errorf("the command does not list them: %s", ls)
	}
	for _, n := range hostileNames {
		quoted := strconv.Quote(n)
		var entries struct {
			Entries []struct{ Name, Path string }
			Files   []struct{ Name, Path string }
		}
		if err := json.Unmarshal([]byte(listed), &entries); err != nil {
			t.Fatalf("%v: %s", err, listed)
		}
		found := false
		for _, e := range append(entries.Entries, entries.Files...) {
			found = found || strings.TrimPrefix(e.Path, "/workspace/") == n
		}
		if !found {
			t.Errorf("%s is not listed: %.300s", quoted, listed)
		}
		req, _ := http.NewRequest("GET", s.url+"/v1/sandboxes/names/files/content?path="+url.QueryEscape("/workspace/"+n), nil)
		req.Header.Set("Authorization", "Bearer "+s.key)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != 200 || string(body) != "content" {
			t.Errorf("%s: %s %s", quoted, resp.Status, body)
		}
		var head bytes.Buffer
		_ = resp.Header.Write(&head)
		bad := resp.Header.Get("X-Evil") != "" || hasControlCharacters(strings.ReplaceAll(head.String(), "\r\n", "\n")) ||
			resp.Header.Get("X-Content-Type-Options") != "nosniff" || strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html")
		if bad {
			t.Errorf("%s: its header is %s", quoted, head.String())
		}
		attack.RecordCase("FS-09", "header of a download: "+quoted, bad)
	}
	for what, text := range map[string]string{"the list in JSON": listed, "the list of the command": ls, "the server's log": s.errs.String()} {
		if what == "the list in JSON" { // JSON must escape only control characters
			text = strings.Map(func(r rune) rune {
				if r > 0x7e {
					return -1
				}
				return r
			}, text)
		}
		bad := hasControlCharacters(text) || strings.Contains(text, "\nX-Evil")
		if bad {
			t.Errorf("%s acts on names: %q", what, text)
		}
		attack.RecordCase("FS-09", what, bad)
	}
	// The control: the check detects unescaped names.
	careless := strings.Join(hostileNames, "\n")
	attack.RecordMutant("FS-09", "the names as they are", "escaping", hasControlCharacters(careless) && strings.Contains(careless, "\nX-Evil"))
}

// TestAttackRecords verifies that programs cannot forge log records with their output or their
// requests: each line of the server's log and of the audit log is one JSON document.
//
//suite:part hostile
func TestAttackRecords(t *testing.T) {
	needRoot(t)
	dir := dataDir(t)
	s := startServer(t, dir)
	ctx, svc := t.Context(), s.client()
	forged := `{"time":"2026-01-01T00:00:00Z","level":"AUDIT","msg":"forged","op":"key.create"}`
	lines := []string{"\n" + forged + "\n", "\x1b[2K\x1b[1A", "\r" + forged, strings.Repeat("x", 1<<20), "\x00\xff\xfe", "\u2028" + forged}
	if _, err := svc.Create(ctx, brig.Spec{Name: "records", Egress: brig.Egress{Rules: []brig.EgressRule{{Host: "allowed.example.com", Methods: []string{"GET"}}}}}); err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		quoted, err := json.Marshal(line)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []string{
			"import json,sys; sys.stdout.write(json.loads(%q)); sys.stderr.write(json.loads(%q))",
			"import json; raise ValueError(json.loads(%q), json.loads(%q))",
			"import json,socket\ntry: socket.getaddrinfo(json.loads(%q)[:200], 80); print(json.loads(%q))\nexcept Exception: pass",
		} {
			code := strings.ReplaceAll(c, "%q", fmt.Sprintf("%q", quoted))
			if _, err := svc.RunCode(ctx, "records", brig.Code{Source: code}, nil); err != nil {
				t.Fatal(err)
			}
			_, _ = svc.Exec(ctx, "records", brig.Command{Argv: []string{"python3", "-c", code}}, brig.IO{})
		}
		_, _ = svc.Exec(ctx, "records", brig.Command{Argv: []string{"true", strings.ReplaceAll(line, "\x00", "")}, Env: map[string]string{"A": strings.ReplaceAll(line[:min(len(line), 1000)], "\x00", "")}}, brig.IO{})
		s.do("POST", "/v1/sandboxes", fmt.Sprintf(`{"name":%s}`, quoted))
		s.do("GET", "/v1/sandboxes/"+url.PathEscape(line[:min(len(line), 500)]), "")
	}
	export, err := exec.Command(bin(t, "brig"), "--data-dir", dir, "audit", "export").Output()
	if err != nil {
		t.Fatal(err)
	}
	var streamed bytes.Buffer
	if _, err := svc.Exec(ctx, "records", brig.Command{Argv: []string{"printf", "%s", lines[0]}}, brig.IO{Stdout: &streamed}); err != nil || streamed.String() != lines[0] {
		t.Errorf("what is streamed is not what was printed: %q, %v", streamed.String(), err)
	}
	// records returns the number of lines, and the last line that is not valid
	// JSON or that contains a forged record.
	records := func(text []byte) (n int, bad string) {
		in := bufio.NewScanner(bytes.NewReader(text))
		in.Buffer(nil, 64<<20)
		for in.Scan() {
			line := in.Text()
			var v map[string]any
			if json.Unmarshal(in.Bytes(), &v) != nil && strings.HasPrefix(line, "{") || v["level"] == "AUDIT" || v["msg"] == "forged" || v["op"] == "key.create" || len(line) > 64<<10 || hasControlCharacters(line) {
				bad = fmt.Sprintf("%.300q", line)
			}
			n++
		}
		return n, bad
	}
	for what, text := range map[string][]byte{"the audit log": export, "the server's log": s.errs.Bytes()} {
		n, bad := records(text)
		if bad != "" || what == "the audit log" && n < 20 {
			t.Errorf("%s: %d lines, %s", what, n, bad)
		}
		for _, line := range lines {
			attack.RecordCase("GST-04", fmt.Sprintf("%s: %.40q", what, line), bad != "")
		}
	}
	if out, err := exec.Command(bin(t, "brig"), "--data-dir", dir, "audit", "verify").CombinedOutput(); err != nil {
		t.Errorf("verify: %v: %s", err, out)
	}
	_, bad := records([]byte("{\"level\":\"INFO\",\"msg\":\"program said " + lines[0] + "\"}\n"))
	if bad == "" {
		t.Error("a log that writes what was said as it is, is not seen")
	}
	attack.RecordMutant("GST-04", "a log that writes what was said as it is", "escaping", bad != "")
}

// TestAttackPorts verifies that a client cannot connect to a port of a sandbox
// without a key of its tenant, neither through the server nor directly.
//
//suite:part hostile
func TestAttackPorts(t *testing.T) {
	needRoot(t)
	dir := dataDir(t)
	s := startServer(t, dir)
	ctx, svc := t.Context(), s.client()
	box, err := svc.Create(ctx, brig.Spec{Name: "ports"})
	if err != nil {
		t.Fatal(err)
	}
	const port = 18123
	serve := fmt.Sprintf(`
import socket, threading
s = socket.socket(); s.bind(("0.0.0.0", %d)); s.listen(); n = 0
def go():
    global n
    while True:
        c, _ = s.accept(); n += 1; c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\ninside"); c.close()
threading.Thread(target=go, daemon=True).start()`, port)
	if r, err := svc.RunCode(ctx, "ports", brig.Code{Source: serve}, nil); err != nil || r.Error != nil {
		t.Fatalf("%+v, %v", r, err)
	}
	reached := func() string {
		r, err := svc.RunCode(ctx, "ports", brig.Code{Source: "print(n)"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(r.Stdout.Head))
	}
	other, err := svc.CreateTenant(ctx, brig.Tenant{Name: "stranger"})
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := svc.CreateKey(ctx, brig.KeySpec{Name: "foreign", Tenant: other.Name, Role: brig.Member})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(key, host, path string, more ...string) string {
		c, err := net.DialTimeout("tcp", strings.TrimPrefix(s.url, "http://"), promptTimeout)
		if err != nil {
			return err.Error()
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(2 * time.Second))
		fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\n", path, host)
		if key != "" {
			fmt.Fprintf(c, "Authorization: Bearer %s\r\n", key)
		}
		fmt.Fprint(c, strings.Join(more, "")+"\r\nGET / HTTP/1.1\r\n\r\n")
		b, _ := io.ReadAll(c)
		return string(b)
	}
	here, upgrade := strings.TrimPrefix(s.url, "http://"), "Connection: Upgrade\r\nUpgrade: tcp\r\n"
	id := string(box.ID)
	type try struct{ name, key, host, path, more string }
	tries := []try{}
	for _, path := range []string{"/v1/sandboxes/ports/ports/18123", "/v1/sandboxes/" + id + "/ports/18123", "/v1/sandboxes/default:ports:" + id + "/ports/18123"} {
		tries = append(tries, try{"no key", "", here, path, upgrade}, try{"a bad key", "brig_" + strings.Repeat("a", 43), here, path, upgrade}, try{"another tenant's key", foreign.Secret, here, path, upgrade},
			try{"a key in the query", "", here, path + "?key=" + s.key, upgrade}, try{"a key in a cookie", "", here, path, upgrade + "Cookie: key=" + s.key + "\r\n"})
	}
	for _, host := range []string{fmt.Sprintf("%d-%s.localhost", port, id), fmt.Sprintf("%d-%s.e2b.app", port, id), fmt.Sprintf("%d-ports.localhost", port), fmt.Sprintf("localhost:%d", port)} {
		tries = append(tries, try{"by a name", "", host, "/", ""})
	}
	for _, x := range tries {
		out, n := ask(x.key, x.host, x.path, x.more), reached()
		escaped := n != "0" || strings.Contains(out, "inside") || strings.HasPrefix(out, "HTTP/1.1 101")
		if escaped {
			t.Errorf("%s, %s%s: %s connections: %s", x.name, x.host, x.path, n, out)
		}
		attack.RecordCase("NET-17", x.name+" "+strings.NewReplacer(id, "ID", here, "HERE").Replace(x.host+x.path), escaped)
	}
	addrs, _ := net.InterfaceAddrs()
	for _, a := range append(addrs, &net.IPNet{IP: net.IPv4(127, 0, 0, 1)}, &net.IPNet{IP: net.ParseIP("198.18.0.2")}) {
		ip := a.(*net.IPNet).IP
		c, err := (&net.Dialer{Timeout: 300 * time.Millisecond}).DialContext(ctx, "tcp", net.JoinHostPort(ip.String(), fmt.Sprint(port)))
		if err == nil {
			c.Close()
		}
		escaped := err == nil && reached() != "0"
		if escaped {
			t.Errorf("it is reached at %s", ip)
		}
		attack.RecordCase("NET-17", "past the server, at one of the machine's addresses", escaped)
	}
	out := ask(s.key, here, "/v1/sandboxes/ports/ports/18123", upgrade)
	n := reached()
	if n != "1" || !strings.Contains(out, "inside") {
		t.Errorf("with its tenant's key: %s connections: %s", n, out)
	}
	attack.RecordMutant("NET-17", "with a key of its tenant", "keys", n == "1")
}
