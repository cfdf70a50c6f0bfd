package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brig-run/brig/internal/attack"
)

// drip sends a request whose body has no end, a byte now and then, for so
// long. It returns what it was answered, and whether it was still listened to
// at last.
func drip(url, head string, long time.Duration) (status int, listening bool) {
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		return 0, false
	}
	defer conn.Close()
	fmt.Fprintf(conn, "%s\r\nTransfer-Encoding: chunked\r\n\r\n", strings.Replace(head, "\r\n", " HTTP/1.1\r\nHost: localhost\r\n", 1))
	answer := make(chan int, 1)
	go func() {
		defer close(answer)
		r := bufio.NewReader(conn)
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			return
		}
		answer <- resp.StatusCode
		_, _ = io.Copy(io.Discard, r) // until it is closed
	}()
	for end := time.Now().Add(long); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if _, err := io.WriteString(conn, "1\r\n{\r\n"); err != nil {
			return <-answer, false
		}
	}
	return 0, true
}

// A client that shows no key or token does not keep a connection by a body
// without an end, whatever it asks for. One that does may take its time, and is
// the control: the same drip goes on for longer than a stranger's may.
//
//suite:part core
func TestUnendingBody(t *testing.T) {
	s := startE2B(t)
	var box, shut struct{ SandboxID, EnvdAccessToken string }
	s.call(t, http.MethodPost, "/v2/sandboxes", map[string]any{"templateID": "base"}, &box)
	s.call(t, http.MethodPost, "/v2/sandboxes", map[string]any{"templateID": "base", "network": map[string]any{"allowPublicTraffic": false}}, &shut)
	key, err := os.ReadFile(filepath.Join(s.dir, "admin.key"))
	if err != nil {
		t.Fatal(err)
	}
	at := func(id string, port int) string {
		return fmt.Sprintf("\r\nE2b-Sandbox-Id: %s\r\nE2b-Sandbox-Port: %d", id, port)
	}
	token := "\r\nX-Access-Token: " + box.EnvdAccessToken
	const stream = "\r\nContent-Type: application/connect+json\r\nConnect-Protocol-Version: 1"
	var all sync.WaitGroup
	for name, head := range map[string]string{
		"native, no key":           "POST /v1/run\r\nContent-Type: application/json",
		"native, a wrong key":      "POST /v1/run\r\nAuthorization: Bearer brig_" + strings.Repeat("a", 52),
		"native, an archive":       "POST /v1/images/import?name=x\r\nContent-Type: application/x-tar",
		"native, open":             "GET /healthz\r\nAccept: */*",
		"control, no key":          "POST /sandboxes\r\nContent-Type: application/json",
		"control, a question":      "OPTIONS /sandboxes\r\nOrigin: https://a.example\r\nAccess-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: X-API-Key",
		"envd, an upload":          "POST /files?path=x" + at(box.SandboxID, 49983),
		"envd, a stream":           "POST /process.Process/Start" + at(box.SandboxID, 49983) + stream,
		"envd, a question":         "OPTIONS /files" + at(box.SandboxID, 49983) + "\r\nOrigin: https://a.example\r\nAccess-Control-Request-Method: POST",
		"envd, a bad signature":    "POST /files?path=x&signature=v1_x\r\nAccept: */*",
		"envd, nobody's":           "POST /files?path=x" + at("sbnobody", 49983),
		"code, an execution":       "POST /execute" + at(box.SandboxID, 49999),
		"code, a context":          "POST /contexts" + at(box.SandboxID, 49999),
		"a port that is not open":  "POST /" + at(shut.SandboxID, 8000),
		"CONTROL an upload":        "POST /files?path=x" + at(box.SandboxID, 49983) + token + "\r\nContent-Type: application/octet-stream",
		"CONTROL an execution":     "POST /execute" + at(box.SandboxID, 49999) + token,
		"CONTROL native, with key": "POST /v1/run\r\nContent-Type: application/json\r\nAuthorization: Bearer " + strings.TrimSpace(string(key)),
	} {
		head := strings.Replace(head, "\r\nAccept: */*", "", 1)
		if !strings.Contains(head, "\r\n") {
			head += "\r\nAccept: */*"
		}
		control := strings.HasPrefix(name, "CONTROL")
		long := time.Minute // half of what others have
		if control {
			long = 10 * time.Second
		}
		all.Go(func() {
			status, listening := drip(s.url, head, long)
			if listening != control || !control && status == 0 {
				t.Errorf("%s: answered %d, still listened to: %v", name, status, listening)
			}
			if control {
				attack.Seen("RES-14", name, "who shows no key", listening)
			} else {
				attack.Tried("RES-14", name, listening)
			}
		})
	}
	all.Wait()
}
