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

// sendSlowBody sends a request with an endless body, one byte at a time, for the given duration.
// It returns the response status, and whether the server was still reading at the end.
func sendSlowBody(url, head string, long time.Duration) (status int, listening bool) {
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
		_, _ = io.Copy(io.Discard, r) // read until the server closes the connection
	}()
	for end := time.Now().Add(long); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if _, err := io.WriteString(conn, "1\r\n{\r\n"); err != nil {
			return <-answer, false
		}
	}
	return 0, true
}

// TestEndlessBodyWithoutKeyTimesOut verifies that a client without a key or token cannot keep a connection open
// with an endless body, regardless of the request. The control is an authenticated client, whose
// body may take longer.
//
//suite:part core
func TestEndlessBodyWithoutKeyTimesOut(t *testing.T) {
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
		long := time.Minute // half of the limit for authenticated clients
		if control {
			long = 10 * time.Second
		}
		all.Go(func() {
			status, listening := sendSlowBody(s.url, head, long)
			if listening != control || !control && status == 0 {
				t.Errorf("%s: answered %d, still listened to: %v", name, status, listening)
			}
			if control {
				attack.RecordMutant("RES-14", name, "who shows no key", listening)
			} else {
				attack.RecordCase("RES-14", name, listening)
			}
		})
	}
	all.Wait()
}
