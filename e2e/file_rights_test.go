package e2e

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/e2b/envd"
	"github.com/brig-run/brig/client"
)

// fileRightsLab is a sandbox of E2B's API that a viewer and a member access through every API.
type fileRightsLab struct {
	*e2bServer
	c              *client.Client
	id, token      string
	viewer, member string
	session        *http.Cookie // console session of the viewer
}

// way is a file operation on a directory that contains the file secret.txt.
type way struct {
	name string
	// do makes the call, and returns the response and whether the call was
	// rejected.
	do func(t *testing.T, dir string) (resp string, refused bool)
	// changes is set for a call that modifies the path, shows for one that
	// returns its content.
	changes, shows bool
}

// rootCanary is the content of secret.txt.
const rootCanary = "canary-of-root-7f3a"

// TestRootFilesAreProtected verifies that no API lets callers read, list, watch, change or
// replace a path of root in the sandbox. The exception is a caller that may run commands as root
// and requests root. The control is the same call on a directory of the user, which succeeds.
//
//suite:part hostile
func TestRootFilesAreProtected(t *testing.T) {
	l := newRightsLab(t)
	before := map[string]string{} // empty if the fixtures must be recreated
	for _, w := range l.ways() {
		t.Run(w.name, func(t *testing.T) {
			for _, dir := range []string{"/closed", "/tmp/open"} {
				if len(before) == 0 {
					l.createFixtures(t)
				}
				if before[dir] == "" {
					before[dir] = l.describeFiles(t, dir)
				}
				answer, refused := w.do(t, dir)
				changed, revealed := l.describeFiles(t, dir) != before[dir], strings.Contains(answer, rootCanary)
				if changed || w.changes {
					clear(before)
				}
				if dir == "/closed" && (!refused || changed || revealed) {
					t.Errorf("what is root's: refused %v, changed %v, shown %v: %s", refused, changed, revealed, answer)
				}
				if dir == "/tmp/open" && (refused || changed != w.changes || w.shows && !revealed) {
					t.Errorf("the control: refused %v, changed %v, shown %v: %s", refused, changed, revealed, answer)
				}
			}
		})
	}
	l.createFixtures(t)
	path := "/files/content?user=root&path=/closed/secret.txt"
	if resp, refused := l.rest(t, l.viewer, "GET", path, ""); !refused || strings.Contains(resp, rootCanary) {
		t.Errorf("a viewer as root: %s", resp)
	}
	if resp, refused := l.rest(t, l.member, "GET", path, ""); refused || !strings.Contains(resp, rootCanary) {
		t.Errorf("a member as root: %s", resp)
	}
}

func newRightsLab(t *testing.T) *fileRightsLab {
	s := startE2B(t)
	l := &fileRightsLab{e2bServer: s, c: s.client()}
	l.viewer, l.member = s.keyOf(l.c, brig.Viewer), s.keyOf(l.c, brig.Member)
	key := strings.TrimPrefix(s.env[0], "E2B_API_KEY=")
	body, _, err := l.send(t, "POST", "/sandboxes", `{"templateID":"base","timeout":3600}`, "X-Api-Key", key)
	var made struct{ SandboxID, EnvdAccessToken string }
	if err != nil || json.Unmarshal([]byte(body), &made) != nil || made.EnvdAccessToken == "" {
		t.Fatalf("%s %v", body, err)
	}
	l.id, l.token = made.SandboxID, made.EnvdAccessToken
	req, err := http.NewRequestWithContext(t.Context(), "POST", s.url+"/v1/auth/session", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+l.viewer)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	for _, c := range resp.Cookies() {
		if c.Name == "brig_session" {
			l.session = c
		}
	}
	if l.session == nil {
		t.Fatalf("no session of the console: %s", resp.Status)
	}
	return l
}

// runAs runs a script as a user of the sandbox. Root has no capabilities.
func (l *fileRightsLab) runAs(t *testing.T, user, script string) string {
	t.Helper()
	var out strings.Builder
	res, err := l.c.Exec(t.Context(), l.id, brig.Command{Shell: script, User: user}, brig.IO{Stdout: &out, Stderr: &out})
	if err != nil || res.ExitCode != 0 {
		t.Fatalf("%s: %+v, %v: %s", script, res, err, out.String())
	}
	return out.String()
}

// createFixtures creates a directory of root, a directory of the user, and a
// file of the user.
func (l *fileRightsLab) createFixtures(t *testing.T) {
	t.Helper()
	const fill = "rm -rf $d; mkdir -p $d/sub; echo " + rootCanary + " >$d/secret.txt; "
	l.runAs(t, "root", "d=/closed; "+fill+"chmod 700 $d; chmod 600 $d/secret.txt")
	l.runAs(t, "user", "d=/tmp/open; "+fill+"rm -f /tmp/took; echo mine >/tmp/mine")
}

// describeFiles describes the files in a directory and the content of secret.txt.
func (l *fileRightsLab) describeFiles(t *testing.T, dir string) string {
	t.Helper()
	return l.runAs(t, "root", "cd "+dir+" && find . -printf '%p %m %u %s\\n' | sort && cat secret.txt 2>&1 || true")
}

// send sends a request and reads the start of the response.
func (l *fileRightsLab) send(t *testing.T, method, path, body string, headers ...string) (string, int, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, l.url+path, strings.NewReader(body))
	if err != nil {
		return "", 0, err
	}
	kind := "application/octet-stream"
	if strings.HasPrefix(body, "{") {
		kind = "application/json"
	}
	if body != "" {
		req.Header.Set("Content-Type", kind)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	limit := int64(64 << 10)
	if strings.Contains(path, "/watch") || strings.HasSuffix(path, "/WatchDir") {
		limit = 5 // the stream does not end
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, limit))
	if limit == 5 && strings.HasSuffix(path, "/WatchDir") && len(b) == 5 {
		rest := make([]byte, binary.BigEndian.Uint32(b[1:]))
		_, err = io.ReadFull(resp.Body, rest)
		if b = append(b, rest...); b[0]&2 != 0 && bytes.Contains(b, []byte(`"error"`)) {
			return string(b), http.StatusForbidden, err
		}
	}
	return string(b), resp.StatusCode, err
}

func (l *fileRightsLab) request(t *testing.T, method, path, body string, headers ...string) (string, bool) {
	t.Helper()
	answer, status, err := l.send(t, method, path, body, headers...)
	if err != nil {
		t.Error(err)
	}
	return fmt.Sprintf("%d %s", status, answer), status >= 400
}

func (l *fileRightsLab) rest(t *testing.T, key, method, path, body string) (string, bool) {
	t.Helper()
	return l.request(t, method, "/v1/sandboxes/"+l.id+path, body, "Authorization", "Bearer "+key)
}

// envd sends a request to the sandbox's envd.
func (l *fileRightsLab) envd(t *testing.T, method, path, body string, headers ...string) (string, bool) {
	t.Helper()
	return l.request(t, method, path, body, append([]string{"E2b-Sandbox-Id", l.id, "E2b-Sandbox-Port", "49983"}, headers...)...)
}

// cli runs the brig command with a key.
func (l *fileRightsLab) cli(t *testing.T, key string, args ...string) (string, bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), bin(t, "brig"), args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "BRIG_URL=" + l.url, "BRIG_API_KEY=" + key}
	out, err := cmd.CombinedOutput()
	return string(out), err != nil
}

// ways returns the file operations of every API.
func (l *fileRightsLab) ways() (out []way) {
	add := func(name, does string, do func(t *testing.T, dir string) (string, bool)) {
		out = append(out, way{name, do, does == "changes", does == "shows"})
	}
	for who, key := range map[string]string{"viewer": l.viewer, "member": l.member} {
		for name, c := range map[string][2]string{
			"reads": {"/files/content?path=%s/secret.txt", "shows"}, "lists": {"/files?path=%s", ""}, "stats": {"/files/stat?path=%s/secret.txt", ""}, "watches": {"/files/watch?path=%s", ""},
		} {
			add("REST, a "+who+" "+name, c[1], func(t *testing.T, dir string) (string, bool) {
				return l.rest(t, key, "GET", fmt.Sprintf(c[0], dir), "")
			})
			if who == "viewer" {
				add("console, a viewer "+name, c[1], func(t *testing.T, dir string) (string, bool) {
					return l.request(t, "GET", "/v1/sandboxes/"+l.id+fmt.Sprintf(c[0], dir), "", "Cookie", l.session.String())
				})
			}
		}
		for tool, does := range map[string]string{"read_file": "shows", "list_files": ""} {
			add("MCP, a "+who+": "+tool, does, func(t *testing.T, dir string) (string, bool) {
				at := map[string]string{"read_file": dir + "/secret.txt", "list_files": dir}[tool]
				s := *l.e2bServer.server
				s.t, s.key = t, key
				answer := s.tool(tool, map[string]any{"sandbox": l.id, "path": at})
				return answer, strings.Contains(answer, `"isError":true`)
			})
		}
		add("command line, a "+who+" copies", "shows", func(t *testing.T, dir string) (string, bool) {
			to := filepath.Join(t.TempDir(), "got")
			printed, failed := l.cli(t, key, "sandbox", "cp", l.id+":"+dir+"/secret.txt", to)
			b, _ := os.ReadFile(to)
			return printed + string(b), failed
		})
	}
	for name, c := range map[string][3]string{
		"writes": {"PUT", "/files/content?path=%s/secret.txt", "other"}, "writes anew": {"PUT", "/files/content?path=%s/new/x", "other"}, "makes": {"POST", "/files/mkdir", `{"path":"%s/new"}`},
		"moves from": {"POST", "/files/move", `{"from":"%s/secret.txt","to":"/tmp/took"}`}, "moves to": {"POST", "/files/move", `{"from":"/tmp/mine","to":"%s/secret.txt"}`},
		"removes": {"DELETE", "/files?path=%s/secret.txt", ""}, "removes all": {"DELETE", "/files?path=%s/sub", ""},
		"composes of": {"POST", "/files/compose", `{"source_paths":["%s/secret.txt"],"destination":"/tmp/took"}`}, "composes to": {"POST", "/files/compose", `{"source_paths":["/tmp/mine"],"destination":"%s/secret.txt"}`},
	} {
		add("REST, a member "+name, "changes", func(t *testing.T, dir string) (string, bool) {
			return l.rest(t, l.member, c[0], strings.ReplaceAll(c[1], "%s", dir), strings.ReplaceAll(c[2], "%s", dir))
		})
	}
	for tool, args := range map[string]map[string]any{"write_file": {"text": "other"}, "remove_file": {}} {
		add("MCP, a member: "+tool, "changes", func(t *testing.T, dir string) (string, bool) {
			s := *l.e2bServer.server
			s.t, s.key = t, l.member
			with := map[string]any{"sandbox": l.id, "path": dir + "/secret.txt"}
			for k, v := range args {
				with[k] = v
			}
			answer := s.tool(tool, with)
			return answer, strings.Contains(answer, `"isError":true`)
		})
	}
	add("command line, a member copies in", "changes", func(t *testing.T, dir string) (string, bool) {
		from := filepath.Join(t.TempDir(), "mine")
		if err := os.WriteFile(from, []byte("other"), 0o600); err != nil {
			t.Fatal(err)
		}
		return l.cli(t, l.member, "sandbox", "cp", from, l.id+":"+dir+"/secret.txt")
	})
	return append(out, l.envdWays()...)
}

// envdWays returns the file operations of envd, with the sandbox's token and
// with signed URLs.
func (l *fileRightsLab) envdWays() (out []way) {
	const basic = "Basic dXNlcjo=" // user name "user" and no password
	add := func(name, does string, do func(t *testing.T, dir string) (string, bool)) {
		out = append(out, way{"E2B " + name, do, does == "changes", does == "shows"})
	}
	add("reads", "shows", func(t *testing.T, dir string) (string, bool) {
		return l.envd(t, "GET", "/files?username=user&path="+dir+"/secret.txt", "", "X-Access-Token", l.token)
	})
	signed := func(op, file string) string {
		exp := time.Now().Add(time.Hour).Unix()
		return "/files?" + url.Values{
			"path": {file}, "username": {"user"}, "signature": {envd.Signature(file, op, "user", l.token, exp)}, "signature_expiration": {fmt.Sprint(exp)},
		}.Encode()
	}
	add("reads by a signed URL", "shows", func(t *testing.T, dir string) (string, bool) {
		return l.envd(t, "GET", signed("read", dir+"/secret.txt"), "")
	})
	form := func() (string, string) {
		var b bytes.Buffer
		w := multipart.NewWriter(&b)
		part, _ := w.CreateFormFile("file", "secret.txt")
		_, _ = io.WriteString(part, "other")
		_ = w.Close()
		return b.String(), w.FormDataContentType()
	}
	add("writes", "changes", func(t *testing.T, dir string) (string, bool) {
		body, kind := form()
		return l.envd(t, "POST", "/files?username=user&path="+dir+"/secret.txt", body, "Content-Type", kind, "X-Access-Token", l.token)
	})
	add("writes by a signed URL", "changes", func(t *testing.T, dir string) (string, bool) {
		body, kind := form()
		return l.envd(t, "POST", signed("write", dir+"/secret.txt"), body, "Content-Type", kind)
	})
	for name, c := range map[string][2]string{
		"Stat": {`{"path":"%s/secret.txt"}`, ""}, "ListDir": {`{"path":"%s","depth":1}`, ""}, "CreateWatcher": {`{"path":"%s"}`, ""}, "WatchDir": {`{"path":"%s"}`, ""},
		"MakeDir": {`{"path":"%s/new"}`, "changes"}, "Move": {`{"source":"%s/secret.txt","destination":"/tmp/took"}`, "changes"}, "Remove": {`{"path":"%s/secret.txt"}`, "changes"},
	} {
		add(name, c[1], func(t *testing.T, dir string) (string, bool) {
			body, kind := strings.ReplaceAll(c[0], "%s", dir), "application/json"
			if name == "WatchDir" {
				body, kind = string(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body))))+body, "application/connect+json"
			}
			return l.envd(t, "POST", "/filesystem.Filesystem/"+name, body,
				"Content-Type", kind, "Connect-Protocol-Version", "1", "Authorization", basic, "X-Access-Token", l.token)
		})
	}
	return out
}
