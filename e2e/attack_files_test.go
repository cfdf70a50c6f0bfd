package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/attack"
)

// ways returns URL-encoded paths that might resolve to a file of the host. Some are encoded
// twice, because some parsers decode twice.
func ways(canary string) []string {
	var out []string
	name := strings.TrimPrefix(canary, "/")
	up := func(n int) string { return strings.Repeat("../", n) }
	double := strings.NewReplacer("/", "%2f", ".", "%2e")
	for _, to := range []string{name, filepath.Dir(name), "etc/shadow"} {
		plain := []string{
			"/" + to, up(12) + to, "/workspace/" + up(12) + to, "//" + to, "/./" + to, "/workspace/../" + to, "/" + up(30) + to, "./" + up(12) + to,
			"/workspace/real/../../" + to, strings.ReplaceAll(up(8), "/", "//") + to, "..././..././..././" + to, "....//....//....//" + to,
			strings.ReplaceAll(up(8)+to, "/", `\`), "/proc/self/root/" + to, "/proc/1/root/" + to, "/proc/self/cwd/" + up(12) + to,
			"/proc/1/cwd/" + up(12) + to, "/proc/self/fd/3/" + to, "/proc/1/fd/3/" + up(3) + to, "/proc/thread-self/root/" + to, "/dev/fd/0/" + to,
			"/workspace/link/" + filepath.Base(to), "/workspace/root/" + to, "/workspace/up/" + to, "/workspace/proc/" + to, "/workspace/direct", "/workspace/loop/" + to,
			"~root/../" + to, "~/" + up(12) + to, "file:///" + to, "/" + to + "/", "/" + to + "/.", "/" + to + "\x00.txt", "/workspace/x\x00/" + up(12) + to,
			"C:\\" + to, "\\\\?\\" + to, "/" + to + "\n", "／" + to, "..／..／..／" + to, "/workspace/\xc0\xae\xc0\xae/" + to,
		}
		for _, p := range plain {
			out = append(out, url.QueryEscape(p))
		}
		out = append(out, double.Replace(up(12)+to), url.QueryEscape(double.Replace(up(12)+to)), "%2e%2e/%2e%2e/%2e%2e/"+to, "..%c0%af..%c0%af"+to)
	}
	return append(out, url.QueryEscape("/"+strings.Repeat("a/", 4000)+up(4000)+name), url.QueryEscape("/"+strings.Repeat("a", 5000)), "", "&path="+name)
}

// TestFilesAPICannotEscapeSandbox verifies that the files API resolves every path inside the
// sandbox. It never reads, lists, creates, moves or removes a file on the host, and never responds
// with an internal error.
//
//suite:part hostile
func TestFilesAPICannotEscapeSandbox(t *testing.T) {
	needRoot(t)
	dir, err := os.MkdirTemp("/var/tmp", "brig-canary-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	canary := filepath.Join(dir, "canary")
	secret := plantCanary(t, canary, 0o666)
	state := func() string {
		b, err := os.ReadFile(canary)
		es, err2 := os.ReadDir(dir)
		st, err3 := os.Stat(canary)
		if err != nil || err2 != nil || err3 != nil {
			return fmt.Sprint("gone: ", err, err2, err3)
		}
		return fmt.Sprint(string(b), len(es), st.Mode(), st.ModTime())
	}
	s := startServer(t, dataDir(t))
	ctx, c := t.Context(), s.client()
	if _, err := c.Create(ctx, brig.Spec{Name: "box"}); err != nil {
		t.Fatal(err)
	}
	links := func() {
		t.Helper()
		script := fmt.Sprintf("cd /workspace; mkdir -p real; ln -sfn %s link; ln -sfn / root; ln -sfn ../../../.. up; ln -sfn /proc/1/root proc; ln -sfn %s direct; ln -sfn loop loop; true", dir, canary)
		if res, err := c.Exec(ctx, "box", brig.Command{Shell: script}, brig.IO{}); err != nil || res.ExitCode != 0 {
			t.Fatalf("%+v, %v", res, err)
		}
	}
	links()
	before, mark := state(), filepath.Base(dir)
	const files = "/v1/sandboxes/box/files"
	list := ways(canary)
	if len(list) < 120 {
		t.Errorf("only %d paths", len(list))
	}
	text := func(escaped string) string { // bodies are not URL-decoded
		p, err := url.QueryUnescape(escaped)
		if err != nil {
			return escaped
		}
		return strings.ToValidUTF8(p, "�")
	}
	responses := map[string]int{}
	for i, p := range list {
		for _, op := range []struct{ name, method, path, body string }{
			{"mine", http.MethodPut, files + "/content?path=/workspace/mine", "planted"},
			{"write", http.MethodPut, files + "/content?path=" + p, "planted"},
			{"read", http.MethodGet, files + "/content?path=" + p, ""},
			{"list", http.MethodGet, files + "?path=" + p, ""},
			{"stat", http.MethodGet, files + "/stat?path=" + p, ""},
			{"move onto", http.MethodPost, files + "/move", fmt.Sprintf(`{"from":"/workspace/mine","to":%s}`, quoted(text(p)))},
			{"move", http.MethodPost, files + "/move", fmt.Sprintf(`{"from":%s,"to":"/workspace/taken"}`, quoted(text(p)))},
			{"remove", http.MethodDelete, files + "?path=" + p, ""},
		} {
			status, body := s.file(op.method, op.path, op.body)
			responses[fmt.Sprint(op.name, " ", status)]++
			// Responses may repeat the directory's name, which is part of the requests, but must
			// not contain the content or the size of its file. The file that the test writes has
			// a different size.
			escaped := strings.Contains(body, secret) || status >= 500 || status == 200 && strings.Contains(body, mark) && strings.Contains(body, fmt.Sprintf(`"size":%d`, len(secret)))
			if now := state(); now != before {
				escaped, before = true, now
				t.Errorf("%s of path %d %s: the canary has changed", op.name, i, p)
			}
			if escaped {
				t.Errorf("%s of path %d %.100s: %d %.300s", op.name, i, p, status, body)
			}
			if op.name == "mine" {
				continue
			}
			attack.RecordCase("FS-01", fmt.Sprintf("%s %.200s", op.name, strings.ReplaceAll(p, mark, "DIR")), escaped)
		}
		if i%20 == 0 {
			links()
		}
	}
	t.Logf("%v", responses)
	for _, op := range []string{"read", "list", "stat", "move", "move onto", "write", "remove"} {
		if responses[op+" 200"]+responses[op+" 204"] == 0 {
			t.Errorf("no %s did anything: %v", op, responses)
		}
	}
	checkNaivePaths(t, list, secret)
}

// file sends a request to the files API. The body of an upload is not JSON.
func (s *server) file(method, path, body string) (int, string) {
	s.t.Helper()
	if method != http.MethodPut {
		return s.do(method, path, body)
	}
	req, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.key)
	req.Header.Set("Content-Type", "application/octet-stream")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// checkNaivePaths is the control: a server that joins the requested path to a directory, and does
// not verify that the result is inside it, reveals the canary.
func checkNaivePaths(t *testing.T, list []string, secret string) {
	t.Helper()
	root := t.TempDir()
	var fooled []string
	for _, p := range list {
		name, err := url.QueryUnescape(p)
		if err != nil {
			continue
		}
		for _, try := range []string{root + "/" + name, name} {
			if b, err := os.ReadFile(try); err == nil && strings.Contains(string(b), secret) && !slices.Contains(fooled, p) {
				fooled = append(fooled, p)
			}
		}
	}
	if len(fooled) < 5 {
		t.Errorf("only %q fool a naive server", fooled)
	}
	for i := range fooled {
		attack.RecordMutant("FS-01", fmt.Sprintf("path %d that fools a naive server", i), "the sandbox", true)
	}
}

// TestAttackSpecialFiles verifies that the API rejects special files immediately, instead of
// reading them endlessly or waiting for them.
//
//suite:part hostile
func TestAttackSpecialFiles(t *testing.T) {
	needRoot(t)
	s := startServer(t, dataDir(t))
	ctx, c := t.Context(), s.client()
	if _, err := c.Create(ctx, brig.Spec{Name: "box"}); err != nil {
		t.Fatal(err)
	}
	if res, err := c.Exec(ctx, "box", brig.Command{Shell: "mkfifo pipe; ln -s pipe link; ln -s /dev/zero zeros; echo text > file"}, brig.IO{}); err != nil || res.ExitCode != 0 {
		t.Fatalf("%+v, %v", res, err)
	}
	for _, p := range []string{"/dev/zero", "/dev/random", "/dev/null", "/dev/full", "/workspace/pipe", "/workspace/link", "/workspace/zeros", "/workspace", "/proc/self/fd/0", "/proc/self/mem", "/proc/kmsg"} {
		for _, method := range []string{http.MethodGet, http.MethodPut} {
			status, body := s.file(method, "/v1/sandboxes/box/files/content?path="+p, map[string]string{http.MethodPut: "x"}[method])
			escaped := status < 400 && p != "/proc/self/fd/0" || status >= 500 || len(body) > 4096
			if escaped {
				t.Errorf("%s %s: %d, %d bytes: %.200s", method, p, status, len(body), body)
			}
			attack.RecordCase("FS-06", method+" "+p, escaped)
		}
	}
	// The control: the API reads a regular file, and a program in the sandbox can read endless
	// data from a special file.
	status, body := s.do(http.MethodGet, "/v1/sandboxes/box/files/content?path=/workspace/file", "")
	res, err := c.Exec(ctx, "box", brig.Command{Shell: "head -c 100000 zeros"}, brig.IO{})
	if status != 200 || body != "text\n" || err != nil || len(res.Stdout.Head) != 100000 {
		t.Errorf("the control: %d %q, %v", status, body, err)
	} else {
		attack.RecordMutant("FS-06", "a program reads from /dev/zero", "the look at what is opened", true)
	}
}
